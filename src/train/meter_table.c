/* meter_table.c: what a meter remembers, by operator, shapes and types. See meter_private.h. */
#include <stdlib.h>
#include <string.h>

#include "meter_private.h"
#include "op.h"

static uint64_t mix(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; ++i) {
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static uint64_t mix_tensor(uint64_t hash, const struct ull__meter_of *meter, int tensor, bool sizes)
{
    if (tensor == ULL_NONE) {
        return mix(hash, "none", 4);
    }
    const struct ull__tensor *of = &meter->graph->tensors[tensor];
    hash = mix(hash, &of->type, sizeof(of->type));
    hash = mix(hash, &meter->layouts[tensor], 1);
    for (int i = 0; i < of->rank; ++i) {
        int64_t size =
            sizes ? ull__dim_value(meter->graph->symbols, of->dims[i], meter->values) : of->dims[i];
        hash = mix(hash, &size, sizeof(size));
    }
    return mix(hash, &of->rank, sizeof(of->rank));
}

uint64_t ull__meter_key(const struct ull__meter_of *meter, int node, bool sizes)
{
    const struct ull__node *of = &meter->graph->nodes[node];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    hash = mix(hash, of->op->name, strlen(of->op->name));
    hash = mix(hash, &of->attrs, sizeof(of->attrs));
    for (int i = 0; i < of->input_count; ++i) {
        hash = mix_tensor(hash, meter, of->inputs[i], sizes);
    }
    for (int i = 0; i < of->output_count; ++i) {
        hash = mix_tensor(hash, meter, of->outputs[i], sizes);
    }
    return hash != 0 ? hash : 1;
}

struct ull__meter_entry *ull__meter_look(const struct ull__meter_table *table, uint64_t key)
{
    for (size_t i = table->room > 0 ? key % table->room : 0; table->room > 0;
         i = (i + 1) % table->room) {
        if (table->entries[i].key == key || table->entries[i].key == 0) {
            return &table->entries[i];
        }
    }
    return NULL;
}

struct ull__meter_entry *ull__meter_entry_of(struct ull__meter_table *table, uint64_t key)
{
    if (2 * table->count >= table->room) {
        struct ull__meter_table larger = {calloc(2 * table->room + 256, sizeof(*larger.entries)),
                                          2 * table->room + 256, 0};
        if (larger.entries == NULL) {
            return NULL;
        }
        for (size_t i = 0; i < table->room; ++i) {
            if (table->entries[i].key != 0) {
                *ull__meter_look(&larger, table->entries[i].key) = table->entries[i];
                larger.count += 1;
            }
        }
        free(table->entries);
        *table = larger;
    }
    return ull__meter_look(table, key);
}
