/* training.h: a small made-up state of a training that says by all of its bytes which step it is of. */
#ifndef ULLAGE_TESTS_SAVE_TRAINING_H
#define ULLAGE_TESTS_SAVE_TRAINING_H

#include <math.h>

#include "save.h"

struct training {
    struct ull__save_state state;
    struct ull__save_switch switches[2];
    float weights[300], moments[600];
    uint16_t half[5];
    struct ull__save_tensor model[2], rest[1];
};

static inline void training_at(struct training *t, uint64_t step)
{
    *t = (struct training){
        .state = {.step = step,
                  .epoch = step / 3,
                  .position = step * 128,
                  .seed = 0xfedcba9876543210u + step,
                  .schedule_step = step - step / 2,
                  .learning_rate = 0.1 / (double)(step + 3),
                  .loss_scale = 65536.0 / (double)(step + 1),
                  .scale_good_steps = step + 7,
                  .scale_hysteresis = 2,
                  .scale_low_steps = step % 2,
                  .skipped = step / 2,
                  .loss = NAN,
                  .accuracy = 0.1 * (double)step,
                  .seconds = 1.0 / 3,
                  .model_identity = UINT64_MAX - step,
                  .data_identity = step,
                  .model = "resnet20",
                  .data = "{\"format\":\"idx\",\"mean\":[0.28604060411453203]}",
                  .options = "{\"lr\":0.10000000000000001}"},
        .switches = {{1, 64, 1 << 20, "plain", "start"}, {step, 32, 1 << 19, "recompute", "\"less\""}},
    };
    for (size_t i = 0; i < 300; i++)
        t->weights[i] = (float)step + (float)i / 300;
    for (size_t i = 0; i < 600; i++)
        t->moments[i] = (float)step * 2 + (float)i;
    for (size_t i = 0; i < 5; i++)
        t->half[i] = (uint16_t)(step * 5 + i);
    t->model[0] = (struct ull__save_tensor){"w", ULL_SAVE_F32, 2, {30, 10}, t->weights};
    t->model[1] = (struct ull__save_tensor){"h", ULL_SAVE_BF16, 1, {5}, t->half};
    t->rest[0] = (struct ull__save_tensor){"w.m", ULL_SAVE_F32, 1, {600}, t->moments};
    t->state.switches = t->switches;
    t->state.switch_count = 2;
}

static inline ull_status training_save(struct ull__save *save, uint64_t step, struct ull_error *err)
{
    struct training t;
    training_at(&t, step);
    return ull__save_write(save, &t.state, t.model, 2, t.rest, 1, err);
}

/* That what was loaded is exactly that of its step, which is returned. */
static inline uint64_t training_check(const struct ull__saved *saved)
{
    struct training want, got;
    const struct ull__save_state *s = &saved->state;
    training_at(&want, s->step);
    training_at(&got, s->step + 1000);
    assert_int_equal(ull__safetensors_read_all(saved->model, got.model, 2, true, NULL), ULL_OK);
    assert_int_equal(ull__safetensors_read_all(saved->rest, got.rest, 1, true, NULL), ULL_OK);
    assert_memory_equal(got.weights, want.weights, sizeof want.weights);
    assert_memory_equal(got.moments, want.moments, sizeof want.moments);
    assert_memory_equal(got.half, want.half, sizeof want.half);
    assert_true(s->epoch == want.state.epoch && s->position == want.state.position);
    assert_true(s->seed == want.state.seed && s->schedule_step == want.state.schedule_step);
    assert_true(s->learning_rate == want.state.learning_rate &&
                s->loss_scale == want.state.loss_scale);
    assert_true(s->scale_good_steps == want.state.scale_good_steps);
    assert_true(s->scale_hysteresis == 2 && s->scale_low_steps == want.state.scale_low_steps);
    assert_true(s->skipped == want.state.skipped && isnan(s->loss));
    assert_true(s->accuracy == want.state.accuracy && s->seconds == want.state.seconds);
    assert_true(s->model_identity == want.state.model_identity);
    assert_true(s->data_identity == want.state.data_identity);
    assert_string_equal(s->model, "resnet20");
    assert_string_equal(s->data, want.state.data);
    assert_string_equal(s->options, want.state.options);
    assert_int_equal(s->switch_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(s->switches[i].step == want.switches[i].step);
        assert_true(s->switches[i].micro_batch == want.switches[i].micro_batch);
        assert_true(s->switches[i].budget_bytes == want.switches[i].budget_bytes);
        assert_string_equal(s->switches[i].plan, want.switches[i].plan);
        assert_string_equal(s->switches[i].why, want.switches[i].why);
    }
    return s->step;
}

#endif
