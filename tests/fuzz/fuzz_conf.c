/* fuzz_conf.c: configuration files (src/base/conf.c), and what reads their values. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "conf.h"
#include "size.h"

const char *const fuzz_tokens[] = {"memory", "growth", "report", "log",   "max_request", " = ",
                                   "=",      "#",      " #",     "\n",    "\r\n",        "\t",
                                   "true",   "off",    "40%",    "4GiB,", NULL};

static void check_item(const struct ull__conf *conf, enum ull__conf_key key)
{
    const struct ull__conf_item *item = &conf->item[key];
    struct ull_error error;
    struct ull_size size;
    bool truth;
    FUZZ_EXPECT(memchr(item->value, 0, sizeof item->value) != NULL);
    FUZZ_EXPECT(memchr(item->set_by, 0, sizeof item->set_by) != NULL);
    FUZZ_EXPECT(!item->set || (item->value[0] != 0 && strstr(item->set_by, " line ") != NULL));
    FUZZ_EXPECT(!strchr(item->value, '\n') &&
                item->value[strspn(item->value, " \t\r")] == item->value[0]);
    ull_status status = ull__conf_bool(conf, key, &truth, &error);
    FUZZ_EXPECT(status == ULL_OK || status == ULL_E_INVALID);
    status = ull__size_or_share_parse(item->value, &size, &error);
    FUZZ_EXPECT(status == ULL_OK || status == ULL_E_INVALID);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ull__conf conf;
    struct ull_error error = {.message = ""};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    memset(&conf, 0, sizeof conf);
    ull_status status = ull__conf_read(&conf, text, "a file", &error);
    FUZZ_EXPECT(status == ULL_OK || status == ULL_E_FORMAT || status == ULL_E_INVALID);
    FUZZ_EXPECT(memchr(error.message, 0, sizeof error.message) != NULL);
    FUZZ_EXPECT(status == ULL_OK || strstr(error.message, "a file") != NULL);
    for (int key = 0; key < ULL_CONF_KEYS; key++)
        check_item(&conf, (enum ull__conf_key)key);
    free(text);
    return 0;
}
