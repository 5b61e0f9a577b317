"""Sizes as text: the same answers as src/base/size.c (tests/unit/base/test_size.c)."""

import unittest

from ullage import parse_size, size_text


class Sizes(unittest.TestCase):
    def test_good(self):
        for text, size in [
            ("4GiB", 4 << 30),
            ("4G", 4 << 30),
            ("4096M", 4 << 30),
            ("512Ki", 512 << 10),
            ("4GB", 4 * 10**9),
            ("1.5GiB", 3 << 29),
            ("1.5KB", 1500),
            ("4.1GiB", 4402341478),
            ("1", 1),
            ("7B", 7),
            ("2TiB", 2 << 40),
            ("9223372036854775807", 2**63 - 1),
            (12345, 12345),
        ]:
            self.assertEqual(parse_size(text), size, text)

    def test_shares(self):
        self.assertEqual(parse_size("40%", total=1000), 400)
        self.assertEqual(parse_size("12.5%", total=1000), 125)
        self.assertEqual(parse_size("100%", total=1000), 1000)
        for text in ("0%", "101%", "100.1%", "%", "-1%"):
            with self.assertRaisesRegex(ValueError, "'{}'".format(text)):
                parse_size(text, total=1000)
        with self.assertRaisesRegex(ValueError, "not known here"):
            parse_size("40%")

    def test_bad(self):
        for text in (
            "",
            "GiB",
            "4 GiB",
            "4gib",
            "-4GiB",
            "4.GiB",
            ".5GiB",
            "4GiBx",
            "0",
            "0.0001B",
            "9223372036854775808",
            "9999999TiB",
            "４GiB",
            "4GiB\n",
            -4,
        ):
            with self.assertRaises(ValueError, msg=repr(text)):
                parse_size(text)
        for value in (None, 1.5, True, b"4GiB"):
            with self.assertRaises(TypeError):
                parse_size(value)

    def test_texts(self):
        for size, text in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (3 << 29, "1.5 GiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (1 << 62, "4.0 EiB"),
        ]:
            self.assertEqual(size_text(size), text)


if __name__ == "__main__":
    unittest.main()
