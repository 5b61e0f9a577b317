/*
 * html.c: `ullage report -f html`: one page that holds everything it needs, for a browser, without a network.
 *
 * The page is page/page.html with its style, its script and two JSON documents put in at marks: the figures, as
 * -f json writes them, and the data of the plots (html_data.c). Text of the record is only in these, where '<' is
 * written as an escape, so nothing in it can end the element, and the script puts it into the page as text and never
 * as markup. Besides, the page's policy forbids scripts without its nonce, and anything from elsewhere.
 */
#include "html.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

typedef bool document_fn(const struct report_input *input, FILE *out, struct ull_error *err);

static bool figures_document(const struct report_input *input, FILE *out, struct ull_error *err)
{
    return report_json(input, out, err) == ULL_OK;
}

static bool data_document(const struct report_input *input, FILE *out, struct ull_error *err)
{
    struct ull_json json;
    (void)err;
    ull__json_init(&json, out);
    bool good = html_data(&json, input, &html_limits);
    good = ull__json_finish(&json) && good;
    ull__json_free(&json);
    return good;
}

/* A document in memory; the caller frees. NULL without memory. */
static char *document(const struct report_input *input, document_fn *write, size_t *size,
                      struct ull_error *err)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    bool good = out && write(input, out, err);
    if (out && fclose(out) != 0)
        good = false;
    if (!good) {
        free(text);
        return NULL;
    }
    return text;
}

static void write_escaped(FILE *out, const char *text, size_t size)
{
    const char *end = text + size;
    while (text < end) {
        const char *sign = memchr(text, '<', (size_t)(end - text));
        fwrite(text, 1, (size_t)((sign ? sign : end) - text), out);
        if (!sign)
            return;
        fputs("\\u003c", out);
        text = sign + 1;
    }
}

/* Of the data itself, which therefore cannot hold it on purpose. */
static uint64_t nonce(const char *text, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3ull;
    return hash ^ hash >> 32;
}

struct parts {
    char *figures, *data;
    size_t figures_size, data_size;
    uint64_t nonce;
};

/* What is to be put in the place of a mark. */
static void write_part(FILE *out, const struct parts *parts, const char *name, size_t size)
{
    if (size == 5 && memcmp(name, "style", size) == 0)
        fputs(html_style, out);
    else if (size == 6 && memcmp(name, "script", size) == 0)
        fputs(html_script, out);
    else if (size == 7 && memcmp(name, "figures", size) == 0)
        write_escaped(out, parts->figures, parts->figures_size);
    else if (size == 4 && memcmp(name, "data", size) == 0)
        write_escaped(out, parts->data, parts->data_size);
    else if (size == 5 && memcmp(name, "nonce", size) == 0)
        fprintf(out, "%016" PRIx64, parts->nonce);
}

/* Marks are "{{name}}", in page.html alone. */
static void write_page(FILE *out, const struct parts *parts)
{
    const char *at = html_page, *mark;
    while ((mark = strstr(at, "{{")) != NULL) {
        const char *end = strstr(mark, "}}");
        fwrite(at, 1, (size_t)(mark - at), out);
        write_part(out, parts, mark + 2, (size_t)(end - mark - 2));
        at = end + 2;
    }
    fputs(at, out);
}

ull_status report_html(const struct report_input *input, FILE *out, struct ull_error *err)
{
    struct parts parts = {0};
    ull_status status = ULL_OK;
    parts.figures = document(input, figures_document, &parts.figures_size, err);
    parts.data = document(input, data_document, &parts.data_size, err);
    if (parts.figures && parts.data) {
        parts.nonce = nonce(parts.figures, parts.figures_size) ^ nonce(parts.data, parts.data_size);
        write_page(out, &parts);
    } else {
        status = ull__fail(err, ULL_E_SYSTEM, "no memory for the page");
    }
    free(parts.figures);
    free(parts.data);
    return status;
}
