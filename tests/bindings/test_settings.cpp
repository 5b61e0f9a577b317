/*
 * test_settings.cpp: what the pools of libullage-torch.so are like, from calls and from what a parent or a user
 * set in the environment.
 *
 * usage: test_settings SCENE     in_own_world.sh unsets what the caller's environment has
 */
#include <cstdlib>

#include "scenes.h"

namespace
{

/* Set for the first use of device 0; nothing is left of it afterwards but the pool. */
void with(const char *name, const char *value)
{
    CHECK(setenv(name, value, 1) == 0);
}

void expect(uint64_t limit, uint64_t held)
{
    char message[300] = "";
    start_cuda();
    if (ullage_torch_open(0, message, sizeof message) != ULL_OK) {
        std::fprintf(stderr, "%s\n", message);
        CHECK(!"open");
    }
    if (stats().limit != limit || stats().held != held)
        std::fprintf(stderr, "limit %llu held %llu\n", (unsigned long long)stats().limit,
                     (unsigned long long)stats().held);
    CHECK(stats().limit == limit && stats().held == held);
}

constexpr uint64_t GiB = 1 << 30;

void memory() /* grows, since nobody says no */
{
    with("ULLAGE_MEMORY", "50%,0=1GiB");
    expect(GiB, 0);
    start_cuda(1);
    CHECK(ullage_torch_open(1, nullptr, 0) == ULL_OK && stats(1).limit == 3 * GiB);
}

void none()
{
    expect(6 * GiB, 0);
}

void growth() /* the variables of both; the call says nothing */
{
    with("ULLAGE_MEMORY", "1GiB");
    with("ULLAGE_GROWTH", "false");
    CHECK(ullage_torch_configure(nullptr, -1, nullptr, 0, nullptr, 0) == ULL_OK);
    expect(GiB, GiB);
}

void calls_win()
{
    with("ULLAGE_MEMORY", "1GiB");
    with("ULLAGE_GROWTH", "false");
    with("ULLAGE_CONFIG", "1;#0:logical=1073741824/0/off");
    CHECK(ullage_torch_configure("25%", 1, nullptr, 0, nullptr, 0) == ULL_OK);
    expect(6 * GiB / 4, 0);
}

void force_wins()
{
    with("TF_FORCE_GPU_ALLOW_GROWTH", "false");
    CHECK(ullage_torch_configure("1GiB", 1, nullptr, 0, nullptr, 0) == ULL_OK);
    expect(GiB, GiB);
}

void default_taken_whole() /* as TensorFlow: all that is free but the system reserve */
{
    CHECK(ullage_torch_configure(nullptr, 0, nullptr, 0, nullptr, 0) == ULL_OK);
    start_cuda();
    size_t free_bytes, total;
    OK(cuMemGetInfo(&free_bytes, &total));
    uint64_t most = free_bytes - 1800 * MiB; /* of a card of compute capability 9 */
    expect(most, most / (2 * MiB) * (2 * MiB));
}

void mixed()
{
    with("ULLAGE_CONFIG", "1;#0:mixed=250000000/500000000");
    expect(3 * GiB, 6 * GiB / 4);
}

void logical_together()
{
    with("ULLAGE_CONFIG", "1;#0:logical=1073741824/0/on+2147483648/536870912/on");
    expect(3 * GiB, GiB / 2);
}

void larger_than_the_card()
{
    with("ULLAGE_CONFIG",
         "1;#0:logical=4294967296/0/on+4294967296/0/on;#1:logical=1099511627776/0/on");
    expect(6 * GiB, 0);
    start_cuda(1);
    CHECK(ullage_torch_open(1, nullptr, 0) == ULL_OK && stats(1).limit == 6 * GiB);
}

void system_reserve()
{
    with("ULLAGE_CONFIG", "1;system=1073741824");
    start_cuda();
    size_t free_bytes, total;
    OK(cuMemGetInfo(&free_bytes, &total));
    expect(free_bytes - GiB, 0);
}

void in_a_job() /* whose card has the size of the budget already */
{
    with("ULLAGE_MEMORY", "50%");
    with("ULLAGE_JOB", "job");
    expect(6 * GiB, 0);
}

void invisible()
{
    with("ULLAGE_CONFIG", "1;visible=#1");
    start_cuda();
    start_cuda(1);
    std::string text = error_of([] { ullage_torch_alloc(1, 0, nullptr); });
    CHECK(text.find("card 0 is not among the visible cards") != std::string::npos);
    CHECK(!ullage_torch_is_open(0) && ullage_torch_open(1, nullptr, 0) == ULL_OK);
}

void bad() /* refused when the program says that it wants a pool, with the name */
{
    static const char *const bad[][3] = {{"ULLAGE_MEMORY", "4 apples", "4 apples"},
                                         {"ULLAGE_MEMORY", "0=1GiB,1=x", "ULLAGE_MEMORY"},
                                         {"ULLAGE_GROWTH", "perhaps", "perhaps"},
                                         {"ULLAGE_CONFIG", "2", "ULLAGE_CONFIG"},
                                         {"TF_FORCE_GPU_ALLOW_GROWTH", "1", "true or false"}};
    for (const auto &row : bad) {
        char message[600] = "";
        with(row[0], row[1]);
        CHECK(ullage_torch_configure("1GiB", 1, nullptr, 0, message, sizeof message) == ULL_E_INVALID);
        CHECK(std::strstr(message, row[2]));
        CHECK(unsetenv(row[0]) == 0);
    }
    /* A card that is not there is known once the cards are. */
    with("ULLAGE_MEMORY", "GPU-ffffffff-none=1GiB");
    CHECK(ullage_torch_configure(nullptr, -1, nullptr, 0, nullptr, 0) == ULL_OK);
    start_cuda();
    CHECK(error_of([] { ullage_torch_alloc(1, 0, nullptr); }).find("GPU-ffffffff-none") !=
          std::string::npos);
}

/* A child that is spawned: what the parent exports is all that it has. */
void exported()
{
    char text[8192], message[300] = "";
    with("ULLAGE_MEMORY", "1=1GiB");
    CHECK(ullage_torch_configure(nullptr, 0, nullptr, 0, nullptr, 0) == ULL_OK);
    CHECK(ullage_torch_export(text, 10, message, sizeof message) == ULL_E_INVALID);
    CHECK(ullage_torch_export(text, sizeof text, message, sizeof message) == ULL_OK);
    CHECK(std::strstr(text, ":growth=off") && std::strstr(text, ":logical=1073741824/0/"));
    with("ULLAGE_CONFIG", text);
    CHECK(unsetenv("ULLAGE_MEMORY") == 0);
    CHECK(ullage_torch_configure(nullptr, -1, nullptr, 0, nullptr, 0) == ULL_OK);
    start_cuda(1);
    CHECK(ullage_torch_open(1, nullptr, 0) == ULL_OK);
    CHECK(stats(1).limit == GiB && stats(1).held == GiB);
}

} // namespace

int main(int argc, char **argv)
{
    static const Scene scenes[] = {{"memory", memory},
                                   {"none", none},
                                   {"growth", growth},
                                   {"calls_win", calls_win},
                                   {"force_wins", force_wins},
                                   {"default_taken_whole", default_taken_whole},
                                   {"mixed", mixed},
                                   {"logical_together", logical_together},
                                   {"larger_than_the_card", larger_than_the_card},
                                   {"system_reserve", system_reserve},
                                   {"in_a_job", in_a_job},
                                   {"invisible", invisible},
                                   {"bad", bad},
                                   {"exported", exported}};
    return run_scene(scenes, argc, argv);
}
