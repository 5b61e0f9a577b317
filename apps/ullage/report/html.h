/* html.h: what the page of `ullage report -f html` is put together from. */
#ifndef ULLAGE_REPORT_HTML_H
#define ULLAGE_REPORT_HTML_H

#include "json.h"
#include "report.h"
#include "spans.h"

/* Bounds of what is embedded: the page stays below 15 MB whatever the history holds. */
struct html_limits {
    size_t spans, pieces; /* see spans.h */
    size_t kinds;         /* allocations that are told apart */
    size_t nodes;         /* of the tree of call stacks */
    size_t text_bytes;    /* of names, tags and files */
    size_t marks;         /* refusals, waits, marks, samples: each */
};
extern const struct html_limits html_limits;

/* The whole data of the page, as one compact JSON object. False without memory. */
bool html_data(struct ull_json *json, const struct report_input *input,
               const struct html_limits *limits);

/* Numbers of texts, frames and stacks as the page knows them; html_names.c. */
struct html_names;

struct html_names *html_names_create(const struct ull__history *history,
                                     const struct html_limits *limits);
void html_names_destroy(struct html_names *names);
/* Number 0 is the empty text. What no longer fits is "...". */
uint32_t html_names_text(struct html_names *names, uint32_t text);
/* The innermost node of a stack, 0: none. A stack that does not fit as a whole loses its innermost frames. */
uint32_t html_names_stack(struct html_names *names, uint32_t stack);
/* "texts", "frames" and "nodes". */
void html_names_write(const struct html_names *names, struct ull_json *json);

/* The changes of the books, packed; html_pack.c. */
void html_pack(struct ull_json *json, const struct ull__spans *spans, const uint32_t *kinds,
               bool *failed);

/* The parts of the page that are files in page/, by page.S; each ends with a 0 byte. */
extern const char html_page[], html_style[], html_script[];

#endif
