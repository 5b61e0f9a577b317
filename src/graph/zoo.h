/*
 * zoo.h: models by name: "resnet50", "resnet50:image=216x3840", "gpt2-124m:context=1024,vocab=50304".
 *
 * A model is its forward pass with its losses; numbers of parameters are those of the published ones, where there are
 * any (tests/unit/graph/test_zoo.c). The batch is a symbol.
 */
#ifndef ULLAGE_GRAPH_ZOO_H
#define ULLAGE_GRAPH_ZOO_H

#include "graph.h"

struct ull__zoo_args;

struct ull__zoo_model {
    const char *name;
    const char *what;      /* a line for a list */
    const char *arguments; /* with their defaults: "image=224 classes=1000" */
    void (*build)(struct ull__graph *graph, const struct ull__zoo_model *model,
                  const struct ull__zoo_args *args);
    int size[6]; /* which of a family: what the builder makes of it */
};

/* All models, a name NULL at the end. */
extern const struct ull__zoo_model ull__zoo[];

/*
 * Builds what `text` names. ULL_E_INVALID: no such model (the message lists names that are near), an argument that it
 * does not have, a value out of range, or shapes that do not fit with these values. Caller destroys.
 */
ull_status ull__zoo_build(const char *text, struct ull__graph **graph, struct ull_error *err);

#endif
