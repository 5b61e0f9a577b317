/* images.h: what only pictures in files have: some cannot be read. */
#ifndef ULLAGE_DATA_IMAGES_H
#define ULLAGE_DATA_IMAGES_H

#include "data_private.h"

/* Whether it can be read, by reading it if nobody has. */
bool ull__images_is_good(const struct ull__data *data, enum ull__data_part part, uint64_t index,
                         struct ull__scratch *scratch);
/* Writes which picture that is and why it cannot be read, by trying once more. */
void ull__images_why(const struct ull__data *data, enum ull__data_part part, uint64_t index,
                     struct ull__scratch *scratch, char *text, size_t size);

#endif
