/*
 * cmd_train.c: `ullage train MODEL --data PATH --memory SIZE`.
 *
 * Planning is src/plan's, running src/train's, samples src/data's, saves src/save's; here they are put together.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "../plan/model.h"
#include "train_plan.h"

static void on_signal(int number)
{
    train_stop = number;
}

/* Before the first step there is nothing to save, and any signal ends the program; later a second one ends it at once. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

/* A name or an argument that there is not is a mistake in the command; -1: it is fine, or a file. */
static int check_model(const char *model)
{
    struct ull__graph *graph = NULL;
    struct ull_error err = {{0}};
    if (model_is_file(model)) {
        return -1;
    }
    ull_status status = model_build(model, false, &graph, &err);
    ull__graph_destroy(graph);
    if (status == ULL_OK) {
        return -1;
    }
    cli_say("%s", err.message);
    return status == ULL_E_INVALID ? EXIT_USAGE : EXIT_FAILED;
}

static int run(const struct train_options *options)
{
    struct training training;
    struct ull_error err = {{0}};
    ull_status status = train_open(options, &training, &err);
    if (status == ULL_OK && training.resumes) {
        status = train_load(&training, &err);
    }
    if (status == ULL_OK) {
        status = train_plan_write(&training, &err);
    }
    bool ran = status == ULL_OK;
    if (ran) {
        catch_signals();
        train_job_open(&training);
        train_print_begin(&training);
        status = train_loop(&training, &err);
    }
    const char *stopped = train_stop == SIGTERM  ? "SIGTERM"
                          : train_stop == SIGINT ? "SIGINT"
                                                 : NULL;
    int code = EXIT_OK;
    if (ran && status == ULL_OK && train_speaks(options) && !train_print_end(&training, stopped)) {
        cli_say("the result could not be written");
        code = EXIT_FAILED;
    }
    if (ran && options->trace != NULL && status == ULL_OK) {
        status = train_trace_write(options->trace, &err);
    }
    if (ran && options->html != NULL && status == ULL_OK) {
        status = train_write_html(&training, &err);
    }
    if (status != ULL_OK) {
        train_ranks_fail(options, &err);
        code = status == ULL_E_PERMISSION ? EXIT_PERMISSION : EXIT_FAILED;
    }
    train_job_close(&training);
    train_close(&training);
    return code;
}

int cmd_train(int argc, char **argv)
{
    struct train_options options = {.epochs = 1,
                                    .learning_rate = -1,
                                    .warmup = 0.05,
                                    .eval_every = 1,
                                    .augment = true,
                                    .seed = 1,
                                    .request = {.attrs = {.momentum = 0.9}}};
    int code = train_read_options(argc, argv, &options);
    code = code < 0 ? check_model(options.model) : code;
    if (code < 0) {
        signal(SIGPIPE, SIG_IGN);
        if (options.ablation) {
            catch_signals();
            code = train_ablation(&options);
        } else {
            code = train_ranks_begin(&options);
            code = code >= 0 ? code : train_ranks_end(&options, run(&options));
        }
    }
    train_plan_close(&options);
    return code;
}
