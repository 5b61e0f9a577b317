/* checkpoint.c: see checkpoint.h. */
#include "checkpoint.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "cuda_load.h"
#include "error.h"
#include "nvml.h"

enum { LOCK_TIMEOUT_MS = 10000, DRIVER_THAT_CAN = 12080, VERSION_TIMEOUT_S = 20 };

/* What the child says: how far it came, and what the driver answered there. */
struct answer {
    enum step {
        STEP_LOAD,
        STEP_INIT,
        STEP_STATE,
        STEP_LOCK,
        STEP_OUT,
        STEP_BACK,
        STEP_UNLOCK,
        STEP_LOST, /* an earlier way back failed for good */
        STEP_TIED, /* it shares by now what the driver cannot move */
        STEP_DONE
    } step;
    int result;
    int state;
    int driver_version;
    char driver_name[CHECKPOINT_DRIVER_TEXT];
};

struct task {
    enum { TASK_OUT, TASK_BACK, TASK_VERSION } what;
    uint32_t pid;
    bool (*tied)(void *data);
    void *data;
};

/* --- the child -------------------------------------------------------------------------------------------- */

static int move_out(const union ull__cuda *cu, const struct task *task, struct answer *answer)
{
    int pid = (int)task->pid;
    CUcheckpointLockArgs lock = {.timeoutMs = LOCK_TIMEOUT_MS};
    if (answer->state == CU_PROCESS_STATE_CHECKPOINTED)
        return CUDA_SUCCESS;
    answer->step = STEP_LOCK;
    int result = answer->state == CU_PROCESS_STATE_LOCKED ? CUDA_SUCCESS
                                                          : cu->cuCheckpointProcessLock(pid, &lock);
    if (result != CUDA_SUCCESS)
        return result;
    answer->step = STEP_OUT;
    if (task->tied && task->tied(task->data)) {
        answer->step = STEP_TIED; /* since it was looked at; locked, it does nothing more */
        result = CUDA_ERROR_NOT_SUPPORTED;
    } else {
        result = cu->cuCheckpointProcessCheckpoint(pid, NULL);
    }
    if (result != CUDA_SUCCESS)
        cu->cuCheckpointProcessUnlock(pid, NULL);
    return result;
}

static int move_back(const union ull__cuda *cu, int pid, struct answer *answer)
{
    int result = CUDA_SUCCESS;
    if (answer->state == CU_PROCESS_STATE_RUNNING)
        return CUDA_SUCCESS;
    answer->step = STEP_BACK;
    if (answer->state == CU_PROCESS_STATE_CHECKPOINTED)
        result = cu->cuCheckpointProcessRestore(pid, NULL);
    if (result != CUDA_SUCCESS) {
        CUprocessState state = CU_PROCESS_STATE_CHECKPOINTED;
        cu->cuCheckpointProcessGetState(pid, &state);
        answer->state = (int)state;
        return result;
    }
    answer->step = STEP_UNLOCK;
    return cu->cuCheckpointProcessUnlock(pid, NULL);
}

static struct answer act(const struct task *task)
{
    struct answer answer = {.step = STEP_LOAD};
    const union ull__cuda *cu = ull__cuda_load(dlopen, getenv("ULLAGE_LIBCUDA"));
    if (cu && cu->cuDriverGetVersion)
        cu->cuDriverGetVersion(&answer.driver_version);
    if (!cu || answer.driver_version < DRIVER_THAT_CAN || !cu->cuInit ||
        !cu->cuCheckpointProcessLock || !cu->cuCheckpointProcessCheckpoint ||
        !cu->cuCheckpointProcessRestore || !cu->cuCheckpointProcessUnlock ||
        !cu->cuCheckpointProcessGetState) {
        answer.result = CUDA_ERROR_NOT_SUPPORTED;
        return answer;
    }
    answer.step = STEP_INIT;
    answer.result = cu->cuInit(0);
    if (answer.result != CUDA_SUCCESS)
        return answer;
    answer.step = STEP_STATE;
    CUprocessState state = CU_PROCESS_STATE_RUNNING;
    answer.result = cu->cuCheckpointProcessGetState((int)task->pid, &state);
    answer.state = (int)state;
    if (answer.result != CUDA_SUCCESS)
        return answer;
    if (state == CU_PROCESS_STATE_FAILED) {
        answer.step = STEP_LOST;
        answer.result = CUDA_ERROR_OPERATING_SYSTEM;
        return answer;
    }
    answer.result = task->what == TASK_OUT ? move_out(cu, task, &answer)
                                           : move_back(cu, (int)task->pid, &answer);
    if (answer.result == CUDA_SUCCESS)
        answer.step = STEP_DONE;
    return answer;
}

static struct answer ask_version(void)
{
    static const struct ull__linker linker = {.open = dlopen, .symbol = dlsym};
    struct answer answer = {.step = STEP_DONE};
    struct ull__nvml nvml;
    if (ull__nvml_init(&nvml, &linker, NULL, NULL) == ULL_OK && nvml.call.nvmlSystemGetDriverVersion &&
        nvml.call.nvmlSystemGetDriverVersion(answer.driver_name, sizeof answer.driver_name) !=
            NVML_SUCCESS)
        answer.driver_name[0] = '\0';
    return answer;
}

static void child(const struct task *task, int to)
{
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nowhere >= 0) { /* drivers talk on standard error now and then */
        dup2(nowhere, STDIN_FILENO);
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
    }
    setsid(); /* what it began it must end, also when the terminal interrupts its parent */
    struct answer answer = task->what == TASK_VERSION ? ask_version() : act(task);
    _exit(write(to, &answer, sizeof answer) == (ssize_t)sizeof answer ? 0 : 1);
}

/* --- the parent ------------------------------------------------------------------------------------------- */

static bool read_answer(int from, unsigned int timeout_s, struct answer *answer)
{
    uint64_t until = cli_monotonic_ns() + timeout_s * 1000000000ull;
    for (;;) {
        uint64_t now = cli_monotonic_ns();
        struct pollfd wait = {.fd = from, .events = POLLIN};
        if (now >= until)
            return false;
        int ready = poll(&wait, 1, (int)((until - now) / 1000000) + 1);
        if (ready > 0)
            return read(from, answer, sizeof *answer) == (ssize_t)sizeof *answer;
        if (ready < 0 && errno != EINTR)
            return false;
    }
}

static ull_status explain(uint32_t pid, const struct answer *answer, struct ull_error *err)
{
    static const char *const steps[] = {
        "load", "start", "ask for the state of", "stop", "move out", "bring back", "let go of"};
    if (answer->step == STEP_DONE)
        return ULL_OK;
    if (answer->step == STEP_LOAD)
        return ull__fail(
            err, ULL_E_DRIVER,
            "this driver cannot move a process to the host (that came with driver 570): start "
            "the job with `ullage run --suspendable`");
    if (answer->step == STEP_BACK && answer->result == CUDA_ERROR_OUT_OF_MEMORY)
        return ull__fail(err, ULL_E_NO_MEMORY, "the card has no room for process %u to come back",
                         pid);
    if (answer->step == STEP_LOST ||
        (answer->step == STEP_BACK && answer->state == CU_PROCESS_STATE_FAILED))
        return ull__fail(err, ULL_E_DRIVER,
                         "the driver failed to bring back process %u and has given it up: its "
                         "memory is lost, end it",
                         pid);
    if (answer->step == STEP_BACK)
        return ull__fail(err, ULL_E_DRIVER,
                         "the driver could not bring back process %u: CUDA error %d; `ullage "
                         "resume` can be tried again",
                         pid, answer->result);
    if (answer->step == STEP_TIED)
        return ull__fail(err, ULL_E_DRIVER,
                         "process %u has just begun to share memory with others, which drivers "
                         "before 610 do not bring back",
                         pid);
    if (answer->step == STEP_OUT && answer->result == CUDA_ERROR_NOT_SUPPORTED)
        return ull__fail(err, ULL_E_DRIVER,
                         "process %u shares memory with others or holds what the driver cannot "
                         "move (drivers before 610 move no memory of IPC, NCCL or multicast)",
                         pid);
    if (answer->step == STEP_LOCK && answer->result == CUDA_ERROR_NOT_READY)
        return ull__fail(
            err, ULL_E_DRIVER,
            "process %u did not come to rest in %d s: it waits for something on the GPU", pid,
            LOCK_TIMEOUT_MS / 1000);
    return ull__fail(err, ULL_E_DRIVER, "the driver could not %s process %u: CUDA error %d",
                     steps[answer->step], pid, answer->result);
}

/* Carries out a task in a child process. Not told: it did not answer in time, and is no more. */
static ull_status ask_child(const struct task *task, unsigned int timeout_s, struct answer *answer,
                            bool *told, struct ull_error *err)
{
    int ends[2], status;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return ull__fail(err, ULL_E_SYSTEM, "cannot make a pipe");
    pid_t helper = fork();
    if (helper == 0)
        child(task, ends[1]);
    close(ends[1]);
    *told = helper > 0 && read_answer(ends[0], timeout_s, answer);
    close(ends[0]);
    if (helper < 0)
        return ull__fail(err, ULL_E_SYSTEM, "cannot start a process");
    if (!*told)
        kill(helper, SIGKILL);
    while (waitpid(helper, &status, 0) < 0 && errno == EINTR)
        continue;
    return ULL_OK;
}

ull_status checkpoint_move(uint32_t pid, bool out, unsigned int timeout_s, bool (*tied)(void *data),
                           void *data, struct ull_error *err)
{
    const struct task task = {
        .what = out ? TASK_OUT : TASK_BACK, .pid = pid, .tied = tied, .data = data};
    struct answer answer = {0};
    bool told = false;
    ull_status status = ask_child(&task, timeout_s, &answer, &told, err);
    if (status != ULL_OK)
        return status;
    if (!told)
        return ull__fail(err, ULL_E_SYSTEM,
                         "the driver did not %s process %u in %u s, and may still be at it",
                         out ? "move out" : "bring back", pid, timeout_s);
    return explain(pid, &answer, err);
}

void checkpoint_driver(char version[CHECKPOINT_DRIVER_TEXT])
{
    const struct task task = {.what = TASK_VERSION};
    struct answer answer = {0};
    bool told = false;
    if (ask_child(&task, VERSION_TIMEOUT_S, &answer, &told, NULL) != ULL_OK || !told)
        answer.driver_name[0] = '\0';
    snprintf(version, CHECKPOINT_DRIVER_TEXT, "%s", answer.driver_name);
}
