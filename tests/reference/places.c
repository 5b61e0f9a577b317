/* places.c: what moves elements and computes nothing. */
#include "call.h"

static void clear(struct array *out)
{
    for (int64_t i = 0; i < out->count; ++i) {
        out->data[i] = 0;
    }
}

/* A whole number that is less than `size`; those below 0 count from the end. */
static int64_t index_of(double value, int64_t size)
{
    int64_t at = (int64_t)value < 0 ? (int64_t)value + size : (int64_t)value;
    if (at < 0 || at >= size) {
        ref__die("index %g of %lld", value, (long long)size);
    }
    return at;
}

void ref__embedding(struct call *call)
{
    int64_t width = call->in[1].dims[1];
    for (int64_t i = 0; i < call->in[0].count; ++i) {
        int64_t row = index_of(call->in[0].data[i], call->in[1].dims[0]);
        memcpy(call->out->data + i * width, call->in[1].data + row * width,
               sizeof(double) * (size_t)width);
    }
}

void ref__embedding_grad(struct call *call)
{
    int64_t width = call->out->dims[1];
    clear(call->out);
    for (int64_t i = 0; i < call->in[0].count; ++i) {
        int64_t row = index_of(call->in[0].data[i], call->out->dims[0]);
        for (int64_t j = 0; j < width; ++j) {
            call->out->data[row * width + j] += call->in[1].data[i * width + j];
        }
    }
}

/* Element i of the gathered array, as a place in the other one. */
static int64_t gathered(const struct call *call, const struct array *large,
                        const struct array *small, int64_t i)
{
    const struct array *which = &call->in[1];
    int axis = call->attrs->axis.axis;
    int64_t index[2 * ULL_RANK], place[ULL_RANK];
    ref__unravel(small, i, index);
    for (int j = 0; j < large->rank; ++j) {
        place[j] = j == axis ? 0 : index[j < axis ? j : j + which->rank - 1];
    }
    place[axis] = index_of(which->data[ref__ravel(which, index + axis)], large->dims[axis]);
    return ref__ravel(large, place);
}

void ref__gather(struct call *call)
{
    for (int64_t i = 0; i < call->out->count; ++i) {
        call->out->data[i] = call->in[0].data[gathered(call, &call->in[0], call->out, i)];
    }
}

void ref__gather_grad(struct call *call)
{
    clear(call->out);
    for (int64_t i = 0; i < call->in[0].count; ++i) {
        call->out->data[gathered(call, call->out, &call->in[0], i)] += call->in[0].data[i];
    }
}

/* A view: the elements are there. */
void ref__reshape(struct call *call)
{
    if (call->out->data != call->in[0].data) {
        ref__die("a reshape that is no view");
    }
}

void ref__transpose(struct call *call)
{
    int64_t index[ULL_RANK], from[ULL_RANK];
    for (int64_t i = 0; i < call->out->count; ++i) {
        ref__unravel(call->out, i, index);
        for (int j = 0; j < call->out->rank; ++j) {
            from[call->attrs->shape.order[j]] = index[j];
        }
        call->out->data[i] = call->in[0].data[ref__ravel(&call->in[0], from)];
    }
}

void ref__expand(struct call *call)
{
    int64_t index[ULL_RANK];
    for (int64_t i = 0; i < call->out->count; ++i) {
        ref__unravel(call->out, i, index);
        call->out->data[i] = call->in[0].data[ref__broadcast(&call->in[0], call->out, index)];
    }
}

/* Copies between an array and a part of it that begins at `begin` along an axis. */
static void copy_part(struct array *whole, struct array *part, int axis, int64_t begin,
                      int64_t step, bool out)
{
    int64_t index[ULL_RANK];
    for (int64_t i = 0; i < part->count; ++i) {
        ref__unravel(part, i, index);
        index[axis] = begin + step * index[axis];
        double *there = &whole->data[ref__ravel(whole, index)];
        if (out) {
            part->data[i] = *there;
        } else {
            *there = part->data[i];
        }
    }
}

void ref__concat(struct call *call)
{
    int axis = call->attrs->axis.axis;
    int64_t begin = 0;
    for (int i = 0; i < call->ins; ++i) {
        copy_part(call->out, &call->in[i], axis, begin, 1, false);
        begin += call->in[i].dims[axis];
    }
}

/* Parts that are views lie there already; copying them onto themselves is harmless. */
void ref__split(struct call *call)
{
    int axis = call->attrs->axis.axis;
    int64_t begin = 0;
    for (int i = 0; i < call->outs; ++i) {
        copy_part(&call->in[0], &call->out[i], axis, begin, 1, true);
        begin += call->out[i].dims[axis];
    }
}

void ref__slice(struct call *call)
{
    const struct ull__axis_attrs *attrs = &call->attrs->axis;
    copy_part(&call->in[0], call->out, attrs->axis, ref__value(call, attrs->begin), attrs->step,
              true);
}

void ref__slice_grad(struct call *call)
{
    const struct ull__axis_attrs *attrs = &call->attrs->axis;
    clear(call->out);
    copy_part(call->out, &call->in[0], attrs->axis, ref__value(call, attrs->begin), attrs->step,
              false);
}

void ref__pad(struct call *call)
{
    const struct ull__pad_attrs *attrs = &call->attrs->pad;
    const struct array *x = &call->in[0];
    int64_t index[ULL_RANK];
    for (int64_t i = 0; i < call->out->count; ++i) {
        bool inside = true;
        ref__unravel(call->out, i, index);
        for (int j = 0; j < x->rank; ++j) {
            index[j] -= ref__value(call, attrs->before[j]);
            inside = inside && index[j] >= 0 && index[j] < x->dims[j];
        }
        call->out->data[i] = inside ? x->data[ref__ravel(x, index)] : attrs->value;
    }
}

static void copy_all(struct call *call)
{
    memcpy(call->out->data, call->in[0].data, sizeof(double) * (size_t)call->out->count);
}

void ref__copy(struct call *call)
{
    copy_all(call);
}
