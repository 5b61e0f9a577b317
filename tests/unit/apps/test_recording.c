/* test_recording.c: what `ullage run --record` writes down of processes, however late it comes to look. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "history.h"
#include "ledger.h"
#include "load.h"
#include "machine.h"
#include "recording.h"

static char folder[] = "/tmp/ullage-recording-XXXXXX";

/* A busy machine may let a short command end before anybody looks: it is a process of the job all the same. */
static void a_command_that_is_over_already(void **state)
{
    (void)state;
    static struct machine machine; /* without a driver */
    static const struct ull__job_spec spec = {.name = "short"};
    char path[sizeof folder + 16];
    struct ull__ledger *ledger;
    struct recording *recording;
    struct ull__history *history;
    struct ull_error err = {""};
    siginfo_t info;
    snprintf(path, sizeof path, "%s/record", folder);
    assert_int_equal(ull__ledger_create(&spec, &ledger, &err), ULL_OK);
    assert_int_equal(recording_create(path, false, ledger, &machine, &recording, &err), ULL_OK);

    pid_t child = fork();
    if (child == 0)
        _exit(7);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    recording_started(recording, child);
    assert_int_equal(waitpid(child, NULL, 0), child);
    recording_reaped(recording, child, 7);
    recording_finish(recording, 7);

    assert_int_equal(ull__history_load(path, &history, &err), ULL_OK);
    assert_int_equal(history->process_count, 1);
    assert_int_equal(history->processes[0].pid, child);
    assert_true(history->processes[0].ended);
    assert_int_equal(history->processes[0].exit_code, 7);
    ull__history_destroy(history);
    char ledger_path[ULL_PATH_TEXT];
    snprintf(ledger_path, sizeof ledger_path, "%s", ull__ledger_path(ledger));
    ull__ledger_close(ledger);
    assert_int_equal(unlink(ledger_path), 0);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_command_that_is_over_already)};
    if (!mkdtemp(folder) || setenv("ULLAGE_SHM_DIR", folder, 1) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char ledgers[sizeof folder + 32];
    snprintf(ledgers, sizeof ledgers, "%s/ullage-%u", folder, geteuid());
    rmdir(ledgers);
    return rmdir(folder) != 0 || failed;
}
