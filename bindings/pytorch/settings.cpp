/*
 * settings.cpp: settings as include/ullage/config.h has them, for a process that opens its devices one by one.
 *
 * The call wins over the environment (configuration files, ULLAGE_MEMORY, ULLAGE_GROWTH, ULLAGE_CONFIG), and
 * TF_FORCE_GPU_ALLOW_GROWTH over the call. Two defaults are PyTorch's instead of TensorFlow's: a pool grows
 * unless somebody says no, and then it may have all of its device.
 *
 * The environment is read when a device is first used, with the cards there are, since asking the driver for
 * cards any earlier would start CUDA in a process that may still fork. Before that only its form is checked.
 */
#include "settings.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace ullage
{
namespace
{

[[noreturn]] void fail(const std::string &text)
{
    throw std::runtime_error("ullage: " + text);
}

void check(ull_status status, const ull_error &error)
{
    if (status != ULL_OK)
        fail(error.message[0] ? error.message : ull_status_text(status));
}

struct Destroy {
    void operator()(ull_config *config) const
    {
        ull_config_destroy(config);
    }
};
using Config = std::unique_ptr<ull_config, Destroy>;

/* Cards that no UUID names, as large as told. */
Config made_up_cards(uint64_t bytes)
{
    static const ull_card none = {};
    ull_card cards[ULL_CARDS];
    std::fill(cards, cards + ULL_CARDS, none);
    for (ull_card &card : cards)
        card.total_bytes = card.free_bytes = bytes;
    ull_config *config;
    ull_error error = {};
    check(ull_config_create(cards, ULL_CARDS, &config, &error), error);
    return Config(config);
}

void set_card(ull_config *config, int card, uint64_t total, const Settings &settings)
{
    ull_error error = {};
    ull_logical_spec spec = {};
    spec.memory_limit = std::min(settings.memory.bytes, total); /* a budget may have made it smaller */
    spec.growth = settings.growth;
    if (spec.memory_limit)
        check(ull_config_set_logical(config, card, &spec, 1, &error), error);
    else if (settings.growth != ULL_GROWTH_UNSET)
        check(ull_config_set_growth(config, card, settings.growth == ULL_GROWTH_ON, &error), error);
}

Config make_config(const Settings &settings)
{
    Config config;
    ull_error error = {};
    if (settings.host_bytes) {
        config = made_up_cards(settings.host_bytes);
    } else {
        ull_config *made = nullptr;
        check(ull_config_create_cuda(&made, &error), error);
        config.reset(made);
    }
    check(ull_config_set_growth_default(config.get(), true, &error), error);
    if (settings.memory.percent > 0)
        check(ull_config_set_share(config.get(), settings.memory.percent / 100, &error), error);
    const ull_card *cards;
    int count = ull_config_cards(config.get(), &cards);
    for (int i = 0; i < count; i++)
        set_card(config.get(), i, cards[i].total_bytes, settings);
    return config;
}

/* Only the form: which cards there are is not known yet. */
void check_environment()
{
    char text[ULL_CONFIG_TEXT];
    ull_error error = {};
    if (ull_config_export(made_up_cards(UINT64_MAX).get(), nullptr, text, sizeof text, &error) ==
        ULL_E_INVALID)
        fail(error.message);
}

} // namespace

Settings read_settings(const char *memory, int growth, const char *device, uint64_t wait_ns)
{
    Settings result;
    ull_error error = {};
    result.wait_ns = wait_ns;
    if (growth >= 0)
        result.growth = growth ? ULL_GROWTH_ON : ULL_GROWTH_OFF;
    if (memory)
        check(ull__size_or_share_parse(memory, &result.memory, &error), error);
    if (device && std::strcmp(device, "cuda") != 0) {
        if (std::strncmp(device, "host:", 5) != 0)
            fail(std::string("device '") + device + "' is not known: expected cuda, or host:SIZE");
        check(ull__size_parse(device + 5, &result.host_bytes, &error), error);
    }
    check_environment();
    return result;
}

ull_plan_device plan_device(const Settings &settings, int device, ull__device *seam)
{
    uint64_t free_bytes, total;
    ull_error error = {};
    check(seam->ops->memory(seam, &free_bytes, &total), error);
    Config config = make_config(settings);
    auto plan = std::make_unique<ull_plan>();
    check(ull_config_plan_card(config.get(), nullptr, device, free_bytes, plan.get(), &error), error);
    /* PyTorch knows no logical devices: the process has what they have together. */
    ull_plan_device result = plan->device[0];
    for (int i = 1; i < plan->count; i++) {
        result.limit += std::min(plan->device[i].limit, total - std::min(total, result.limit));
        result.start += plan->device[i].start;
        result.growth = result.growth || plan->device[i].growth;
    }
    result.start = std::min(result.start, result.limit);
    if (!result.set && result.growth)
        result.limit = total;
    return result;
}

std::string export_settings(const Settings &settings)
{
    char text[ULL_CONFIG_TEXT];
    ull_error error = {};
    check(ull_config_export(make_config(settings).get(), nullptr, text, sizeof text, &error), error);
    return text;
}

} // namespace ullage
