/* test_reader.c: what a record gives back when it is whole, torn, cut, damaged, foreign or newer. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "reader.h"
#include "writer.h"

static char folder[] = "/tmp/ullage-test-record-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "w");
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

static size_t get_file(const char *path, uint8_t *data, size_t most)
{
    FILE *file = fopen(path, "r");
    size_t size = fread(data, 1, most, file);
    fclose(file);
    return size;
}

/* Three blocks of ten events each; where they begin is in offsets[0..3], the last is the end. */
static size_t make_record(const char *path, uint8_t *data, size_t most, size_t offsets[4])
{
    char id[ULL_RECORD_ID];
    struct ull__writer *writer;
    assert_int_equal(ull__record_create(path, id, NULL), ULL_OK);
    assert_int_equal(ull__writer_open(path, id, &writer, NULL), ULL_OK);
    ull__writer_process(writer, 0, &(struct ull__record_process){.pid = 7, .name = "guest"});
    for (int block = 0; block < 3; block++) {
        offsets[block] = get_file(path, data, most);
        for (int i = 0; i < 10; i++)
            ull__writer_event(writer, &(struct ull__event){.time_ns = 1000u * (unsigned)i,
                                                           .kind = ULL_EVENT_ALLOC,
                                                           .address = 512u * (unsigned)i,
                                                           .size = 99});
        assert_true(ull__writer_flush(writer, 0));
    }
    ull__writer_close(writer);
    offsets[3] = get_file(path, data, most);
    return offsets[3];
}

struct seen {
    ull_status status;
    uint64_t events, torn, broken, blocks;
    bool truncated;
    struct ull_error err;
};

static struct seen read_all(const char *path)
{
    struct seen seen = {.err = {""}};
    struct ull__reader *reader;
    struct ull__block_view block;
    seen.status = ull__reader_open(path, &reader, &seen.err);
    if (seen.status != ULL_OK)
        return seen;
    while ((seen.status = ull__reader_next(reader, &block, &seen.err)) == ULL_OK) {
        struct ull__cursor payload = {block.payload, block.payload + block.head.payload, false};
        struct ull__deltas last = {.time_ns = block.head.base};
        struct ull__event event;
        struct ull__item item;
        uint32_t events = 0;
        int what;
        while ((what = ull__next_item(&payload, &last, &event, &item)) != 0) {
            assert_int_not_equal(what, '!');
            events += what == 'e';
        }
        assert_int_equal(events, block.head.events);
        seen.events += events;
        seen.blocks++;
    }
    seen.torn = ull__reader_torn(reader);
    seen.truncated = ull__reader_truncated(reader, &seen.broken);
    ull__reader_close(reader);
    return seen;
}

static uint8_t data[1 << 16], other[1 << 16];
static size_t offsets[4];

static void whole(void **state)
{
    (void)state;
    make_record(in_folder("whole"), data, sizeof data, offsets);
    struct seen seen = read_all(in_folder("whole"));
    assert_int_equal(seen.status, ULL_E_NOT_FOUND);
    assert_int_equal(seen.events, 30);
    assert_int_equal(seen.torn, 0);
    assert_false(seen.truncated);
}

/* Cut at every byte: what is whole before the cut is read, and the cut is where its block begins. */
static void cut(void **state)
{
    (void)state;
    size_t size = make_record(in_folder("cut"), data, sizeof data, offsets);
    for (size_t end = 1; end < size; end++) {
        put_file(in_folder("cut"), data, end);
        struct seen seen = read_all(in_folder("cut"));
        int blocks = 0;
        while (offsets[blocks + 1] <= end)
            blocks++;
        assert_int_equal(seen.status, ULL_E_NOT_FOUND);
        assert_int_equal(seen.events, 10 * blocks);
        assert_int_equal(seen.truncated, end != offsets[blocks]);
        if (seen.truncated)
            assert_int_equal(seen.broken, offsets[blocks]);
    }
}

/* The middle block cut short at every byte, and others appended after it. */
static void torn(void **state)
{
    (void)state;
    make_record(in_folder("torn"), data, sizeof data, offsets);
    size_t middle = offsets[2] - offsets[1];
    for (size_t kept = 1; kept < middle; kept++) {
        memcpy(other, data, offsets[1] + kept);
        memcpy(other + offsets[1] + kept, data + offsets[2], offsets[3] - offsets[2]);
        put_file(in_folder("torn"), other, offsets[3] - middle + kept);
        struct seen seen = read_all(in_folder("torn"));
        assert_int_equal(seen.status, ULL_E_NOT_FOUND);
        assert_int_equal(seen.events, 20);
        assert_int_equal(seen.torn, 1);
        assert_false(seen.truncated);
    }
}

/* Any changed byte in the middle is an error that names the block, and never a wrong event. */
static void damaged(void **state)
{
    (void)state;
    size_t size = make_record(in_folder("damaged"), data, sizeof data, offsets);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "damaged at offset %zu", offsets[1]);
    for (size_t at = offsets[1]; at < offsets[2]; at++) {
        memcpy(other, data, size);
        other[at] ^= 0x10;
        put_file(in_folder("damaged"), other, size);
        struct seen seen = read_all(in_folder("damaged"));
        assert_int_equal(seen.status, ULL_E_FORMAT);
        assert_non_null(strstr(seen.err.message, wanted));
        assert_int_equal(seen.events, 10);
    }
}

static void foreign(void **state)
{
    (void)state;
    put_file(in_folder("foreign"), "{\"schema\": 1}", 13);
    struct seen seen = read_all(in_folder("foreign"));
    assert_int_equal(seen.status, ULL_E_FORMAT);
    assert_non_null(strstr(seen.err.message, "no record"));
    assert_non_null(strstr(seen.err.message, "expected 89 55 4c 52"));
    put_file(in_folder("foreign"), "", 0);
    seen = read_all(in_folder("foreign"));
    assert_int_equal(seen.status, ULL_E_FORMAT);
    assert_non_null(strstr(seen.err.message, "is empty"));
    put_file(in_folder("foreign"), "\n", 1);
    assert_int_equal(read_all(in_folder("foreign")).status, ULL_E_FORMAT);
    assert_int_equal(read_all(folder).status, ULL_E_SYSTEM);
    assert_int_equal(read_all(in_folder("absent")).status, ULL_E_NOT_FOUND);
}

static void newer(void **state)
{
    (void)state;
    size_t size = make_record(in_folder("newer"), data, sizeof data, offsets);
    data[8] = 9;
    put_file(in_folder("newer"), data, size);
    struct seen seen = read_all(in_folder("newer"));
    assert_int_equal(seen.status, ULL_E_FORMAT);
    assert_non_null(strstr(seen.err.message, "format 9"));
}

static void zeros_at_the_end(void **state)
{
    (void)state;
    size_t size = make_record(in_folder("zeros"), data, sizeof data, offsets);
    memset(data + size, 0, 4096);
    put_file(in_folder("zeros"), data, size + 4096);
    struct seen seen = read_all(in_folder("zeros"));
    assert_int_equal(seen.status, ULL_E_NOT_FOUND);
    assert_true(seen.truncated);
    assert_int_equal(seen.broken, size);
}

/* Many blocks, large ones, and longer than the reader's window. */
static void large(void **state)
{
    (void)state;
    enum { COUNT = 400000 };
    char id[ULL_RECORD_ID];
    struct ull__writer *writer;
    assert_int_equal(ull__record_create(in_folder("large"), id, NULL), ULL_OK);
    assert_int_equal(ull__writer_open(in_folder("large"), id, &writer, NULL), ULL_OK);
    for (uint64_t i = 0; i < COUNT; i++)
        ull__writer_event(writer, &(struct ull__event){.time_ns = i * 1000,
                                                       .kind = ULL_EVENT_ALLOC,
                                                       .address = i * 7777,
                                                       .size = i});
    ull__writer_close(writer);
    struct seen seen = read_all(in_folder("large"));
    assert_int_equal(seen.events, COUNT);
    assert_true(seen.blocks > 10);
}

/* --- the writer's side --------------------------------------------------------------------------------- */

static void takes_the_place_of_records_only(void **state)
{
    (void)state;
    char id[ULL_RECORD_ID];
    struct ull_error err;
    make_record(in_folder("old"), data, sizeof data, offsets);
    assert_int_equal(ull__record_create(in_folder("old"), id, &err), ULL_OK);
    assert_int_equal(get_file(in_folder("old"), data, sizeof data), 0);
    assert_int_equal(ull__record_create(in_folder("old"), id, &err), ULL_OK); /* an empty one */
    put_file(in_folder("old"), "precious", 8);
    assert_int_equal(ull__record_create(in_folder("old"), id, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "is no record"));
    assert_int_equal(get_file(in_folder("old"), data, sizeof data), 8);
    assert_int_equal(ull__record_create("/dev/full", id, &err), ULL_E_INVALID);
    assert_int_equal(ull__record_create(folder, id, &err), ULL_E_INVALID);
    assert_int_equal(ull__record_create(in_folder("no/where"), id, &err), ULL_E_NOT_FOUND);
    assert_int_equal(ull__record_create("", id, &err), ULL_E_INVALID);
}

/* A writer whose descriptor was closed opens the file again, but never another one. */
static void descriptor_is_closed(void **state)
{
    (void)state;
    char id[ULL_RECORD_ID], moved[300];
    struct ull__writer *writer;
    struct ull__event event = {.kind = ULL_EVENT_ALLOC, .size = 1};
    assert_int_equal(ull__record_create(in_folder("closed"), id, NULL), ULL_OK);
    assert_int_equal(ull__writer_open(in_folder("closed"), id, &writer, NULL), ULL_OK);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    int stranger = open(in_folder("stranger"), O_WRONLY | O_CREAT, 0600);
    while (stranger < 900 && stranger >= 0)
        stranger = dup(stranger); /* also under the number that the writer had */
    ull__writer_event(writer, &event);
    assert_true(ull__writer_flush(writer, 0));
    assert_int_equal(read_all(in_folder("closed")).events, 1);
    assert_int_equal(get_file(in_folder("stranger"), data, sizeof data), 0);
    /* Another file under the path: recording ends. */
    snprintf(moved, sizeof moved, "%s.moved", in_folder("closed"));
    rename(in_folder("closed"), moved);
    put_file(in_folder("closed"), ULL_RECORD_MAGIC, 8);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    ull__writer_event(writer, &event);
    assert_false(ull__writer_flush(writer, 0));
    assert_int_not_equal(ull__writer_error(writer), 0);
    for (int i = 0; i < 100000; i++) /* and nothing more is done */
        ull__writer_event(writer, &event);
    assert_int_equal(ull__writer_text(writer, "text"), 0);
    assert_false(ull__writer_flush(writer, 1));
    ull__writer_close(writer);
    assert_int_equal(get_file(in_folder("closed"), data, sizeof data), 8);
}

static void in_child(const char *path)
{
    struct ull__writer *writer;
    sigset_t limit;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &limit, NULL);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){20000, 20000});
    if (ull__writer_open(path, NULL, &writer, NULL) != ULL_OK)
        _exit(1);
    for (uint64_t i = 0; i < 100000; i++)
        ull__writer_event(
            writer, &(struct ull__event){.time_ns = i * i, .kind = ULL_EVENT_ALLOC, .size = i});
    for (int i = 0; i < 3000; i++) {
        char text[32];
        snprintf(text, sizeof text, "text number %d", i);
        ull__writer_text(writer, text);
    }
    _exit(ull__writer_error(writer) ? 42 : 2);
}

/* A limit on the size of files ends the recording and not the program; what fitted is read. */
static void no_room(void **state)
{
    (void)state;
    char id[ULL_RECORD_ID];
    int status;
    make_record(in_folder("full"), data, sizeof data, offsets);
    assert_int_equal(ull__record_create(in_folder("none"), id, NULL), ULL_OK);
    pid_t child = fork();
    if (child == 0)
        in_child(in_folder("full"));
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
    struct seen seen = read_all(in_folder("full"));
    assert_int_equal(seen.status, ULL_E_NOT_FOUND);
    assert_int_equal(seen.events, 30);
    assert_true(seen.truncated);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[300];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole),
                                       cmocka_unit_test(cut),
                                       cmocka_unit_test(torn),
                                       cmocka_unit_test(damaged),
                                       cmocka_unit_test(foreign),
                                       cmocka_unit_test(newer),
                                       cmocka_unit_test(zeros_at_the_end),
                                       cmocka_unit_test(large),
                                       cmocka_unit_test(takes_the_place_of_records_only),
                                       cmocka_unit_test(descriptor_is_closed),
                                       cmocka_unit_test(no_room)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
