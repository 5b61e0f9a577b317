/* test_spec.c: what is typed after --data, and what is found at a path. */
#include "world.h"

static struct ull__data_spec good(const char *text)
{
    struct ull_error err = {""};
    struct ull__data_spec spec;
    if (ull__data_spec_parse(text, &spec, &err) != ULL_OK)
        fail_msg("%s: %s", text, err.message);
    return spec;
}

static void bad(const char *text, const char *word)
{
    struct ull_error err = {""};
    struct ull__data_spec spec = {.samples = 77};
    assert_int_equal(ull__data_spec_parse(text, &spec, &err), ULL_E_INVALID);
    assert_int_equal(spec.samples, 77);
    if (!strstr(err.message, word))
        fail_msg("%s: '%s' does not say '%s'", text, err.message, word);
}

static void options_are_read(void **state)
{
    (void)state;
    struct ull__data_spec spec = good("a/b");
    assert_string_equal(spec.path, "a/b");
    assert_int_equal(spec.format, ULL_DATA_AUTO);
    assert_true(spec.split < 0 && spec.ignore == -1 && spec.augment == -1);
    spec = good("a,b,c,format=idx,split=0.25,augment=crop+flip,pad=3");
    assert_string_equal(spec.path, "a,b,c");
    assert_int_equal(spec.format, ULL_DATA_IDX);
    assert_true(spec.split == 0.25 && spec.pad == 3);
    assert_int_equal(spec.augment, ULL_DATA_CROP | ULL_DATA_FLIP);
    spec = good("x,mean=0.5,std=0.25");
    assert_true(spec.colours == 1 && spec.mean[0] == 0.5f && spec.deviation[0] == 0.25f);
    spec = good("x,std=1/2/3,mean=0/-.5/1e-2");
    assert_true(spec.colours == 3 && spec.mean[1] == -0.5f && spec.deviation[2] == 3);
    spec = good("t,type=u32,vocab=50257,ignore=0,split=none");
    assert_true(spec.token_bytes == 4 && spec.vocab == 50257 && spec.ignore == 0 && spec.split == 0);
    spec = good("synthetic,samples=10,classes=3,shape=3x8x9");
    assert_int_equal(spec.format, ULL_DATA_SYNTHETIC);
    assert_true(spec.shape[0] == 3 && spec.shape[1] == 8 && spec.shape[2] == 9);
    spec = good("synthetic,format=text");
    assert_int_equal(spec.format, ULL_DATA_TEXT);
    spec = good("y,unit=bytes");
    assert_int_equal(spec.unit, ULL_DATA_BYTES);
}

static void a_path_may_look_like_options(void **state)
{
    (void)state;
    world_mkdir("a,split=0.1");
    assert_string_equal(good(world_path("a,split=0.1")).path, world_path("a,split=0.1"));
    assert_string_equal(good(world_path("b,split=0.1")).path, world_path("b"));
}

static void bad_options_are_named(void **state)
{
    (void)state;
    bad("", "empty");
    bad(",format=idx", "empty");
    bad("x,colour=red", "'colour'");
    bad("x,colour=red", "augment"); /* the list of those that there are */
    bad("x,format=jpeg", "idx, images");
    bad("x,split=1", "0.1");
    bad("x,split=0", "0.1");
    bad("x,split=nan", "0.1");
    bad("x,split=-0.1", "0.1");
    bad("x,split=0.1x", "0.1");
    bad("x,split=0.1,split=0.2", "twice");
    bad("x,vocab=0", "tokens");
    bad("x,vocab=99999999999", "tokens");
    bad("x,vocab=-1", "tokens");
    bad("x,ignore=-1", "id");
    bad("x,type=u8", "u16");
    bad("x,unit=words", "characters");
    bad("x,shape=3x224", "CxHxW");
    bad("x,shape=3x224x0", "CxHxW");
    bad("x,shape=9x2x2", "CxHxW");
    bad("x,shape=3x224x224x1", "CxHxW");
    bad("x,augment=rotate", "flip+crop");
    bad("x,pad=0", "pixels");
    bad("x,mean=1", "'std=' is missing");
    bad("x,std=1/2,mean=1", "channel");
    bad("x,std=0,mean=1", "above 0");
    bad("x,mean=1//2,std=1", "channel");
    bad("x,mean=1/2/3/4/5,std=1", "channel");
    bad("x,mean=,std=1", "channel");
    char longest[6000];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    bad(longest, "too long");
}

static enum ull__data_format format_of(const char *name, const struct ull__data_want *want)
{
    struct ull__data *data = world_open(name, want);
    enum ull__data_format format = ull__data_info(data)->format;
    ull__data_close(data);
    return format;
}

static void formats_are_recognized(void **state)
{
    (void)state;
    const struct ull__data_want pictures = {.window = 0}, tokens = {.window = 2};
    const uint8_t pixels[8] = {0}, labels[2] = {0, 1};
    const uint16_t ids[8] = {1, 2, 3, 1, 2, 3, 1, 2};
    world_bad("none", &pictures, ULL_E_NOT_FOUND, "no data at");
    world_mkdir("d");
    world_bad("d", &pictures, ULL_E_FORMAT, "empty");
    world_text("d/x.doc", "?");
    world_bad("d", &pictures, ULL_E_FORMAT, "x.doc");
    world_text("d/a.txt", "abcdefgh");
    assert_int_equal(format_of("d", &tokens), ULL_DATA_TEXT);
    assert_int_equal(format_of("d/a.txt", &tokens), ULL_DATA_TEXT);
    world_bad("d", &pictures, ULL_E_INVALID, "takes pictures");
    file_write(world_path("d/train.bin"), ids, sizeof ids);
    world_bad("d", &tokens, ULL_E_FORMAT, "mixed");
    assert_int_equal(format_of("d,format=tokens", &tokens), ULL_DATA_TOKENS);
    assert_int_equal(format_of("d,format=text", &tokens), ULL_DATA_TEXT);
    assert_int_equal(format_of("d/train.bin", &tokens), ULL_DATA_TOKENS);
    world_mkdir("i");
    strcpy(world_folder + strlen(world_folder), "/i");
    world_pair("train", "", 2, 2, 2, pixels, labels);
    world_folder[strlen(world_folder) - 2] = 0;
    assert_int_equal(format_of("i,split=none", &pictures), ULL_DATA_IDX);
    world_bad("i", &tokens, ULL_E_INVALID, "takes tokens");
    world_bad("i/train-images-idx3-ubyte", &pictures, ULL_E_INVALID, "folder");
    world_bad("i,unit=bytes", &pictures, ULL_E_INVALID, "'unit='");
    world_mkdir("p");
    world_mkdir("p/cat");
    world_plain("p/cat/a.png", 3, 3, 1, 2, 3);
    assert_int_equal(format_of("p", &pictures), ULL_DATA_IMAGES);
    world_bad("p/cat/a.png", &pictures, ULL_E_INVALID, "one picture");
    world_plain("p/b.png", 3, 3, 1, 2, 3);
    world_bad("p", &pictures, ULL_E_FORMAT, "in no class");
    file_write(world_path("zero"), "ab\0cd", 5);
    world_bad("zero", &tokens, ULL_E_FORMAT, "no text");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_read),
        cmocka_unit_test_setup_teardown(a_path_may_look_like_options, world_begin, world_end),
        cmocka_unit_test(bad_options_are_named),
        cmocka_unit_test_setup_teardown(formats_are_recognized, world_begin, world_end),
    };
    return cmocka_run_group_tests_name("spec", tests, NULL, NULL);
}
