#!/usr/bin/env python3
"""The daemon's page in headless Chromium: page.py URL TOKEN FOLDER. Prints "ok NAME" or "not ok NAME" a line, and
leaves pictures in FOLDER. 77: no browser."""

import base64
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "page"))
import browser as chromium

url, token, folder = sys.argv[1:]
failed = 0


def check(name, good, why=""):
    global failed
    failed += not good
    print(f"{'ok' if good else 'not ok'} {name}{'' if good else ': ' + str(why)}")


def wait_for(page, script, seconds=15):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if page.run("return " + script):
            return True
        time.sleep(0.1)
    return False


def picture(page, name):
    with open(os.path.join(folder, name), "wb") as out:
        out.write(base64.b64decode(page.call("GET", "/screenshot")))


try:
    page = chromium.Browser.start()
except chromium.NoBrowser as why:
    print(why)
    sys.exit(77)
try:
    page.call("POST", "/url", {"url": url})
    text = "document.getElementById('jobs').innerText"
    check("the job is in the table", wait_for(page, text + ".includes('training')"), page.run("return " + text))
    check("with its state", page.run("return " + text).count("running") == 1, page.run("return " + text))
    check("the card is shown", page.run("return document.getElementById('devices').innerText.includes('Fake GPU')"))
    check("and what is used of it", page.run("return document.querySelector('.held').getBoundingClientRect().width > 20"))
    check("the past is drawn", wait_for(page, "document.querySelectorAll('#past polyline').length == 2"))
    picture(page, "page.png")
    page.run("document.querySelector('#jobs button').click()")
    check("without the token nothing is done", wait_for(page, "document.getElementById('note').innerText.includes('token')"))
    check("and the place for it opens", page.run("return document.querySelector('details').open"))
    page.errors()
    page.run("const t = document.getElementById('token'); t.value = arguments[0]; t.dispatchEvent(new Event('change'))", token)
    page.run("document.querySelector('#jobs button').click()")
    check("with it the job is suspended", wait_for(page, text + ".includes('suspended')"), page.run("return " + text))
    check("and may be resumed", wait_for(page, "document.querySelector('#jobs button').innerText == 'resume'"))
    picture(page, "suspended.png")
    page.run("document.querySelector('#jobs button').click()")
    check("which it is", wait_for(page, text + ".includes('running')"), page.run("return " + text))
    check("the page has no error", page.errors() == [], page.errors())
    page.call("POST", "/window/rect", {"width": 520, "height": 900})
    check("nothing is wider than a narrow window",
          page.run("return document.documentElement.scrollWidth <= innerWidth + 1"),
          page.run("return [document.documentElement.scrollWidth, innerWidth]"))
    picture(page, "narrow.png")
finally:
    page.close()
sys.exit(failed > 0)
