/*
 * machine_cards: cards as their makers describe them. Dense rates, with sums in fp32; what a
 * training reaches of them is an assumption, and said to be one. The figures are from NVIDIA's
 * "Ampere GA102 GPU Architecture", V2.0, Appendix A; "Ada GPU Architecture", V2.1, Appendix A;
 * "RTX Blackwell GPU Architecture", V1.1, Appendix A; and the data sheets of A10, L4 (242 TFLOP/s
 * in bf16 with sparsity), A100 (1758950, PCIe columns), H100 and H200 (1,979 TFLOP/s with sparsity,
 * SXM columns).
 */
#include "cli/estimate/machine.h"

#include <stdio.h>

/* Shares of what the maker says. Large products of BLAS libraries and copies over PCIe come about
 * as close; zinf bench gemm, attention and pcie have the figures of a card that is there. */
#define PRODUCTS_SHARE 0.6
#define MEMORY_SHARE 0.8
#define LINK_SHARE 0.8
/* Sixteen lanes, each way, after line coding: 16 and 32 GT/s (PCI-SIG, PCI Express Base 4.0, 5.0).
 */
#define PCIE4 31.5
#define PCIE5 63.0

static const struct card {
    const char *name, *text, *source;
    double gib, bf16, fp32, bandwidth, link, watts; /* TFLOP/s, GB/s */
    int capability;
} cards[] = {
    {"3090", "GeForce RTX 3090", "NVIDIA Ampere GA102 whitepaper", 24, 71, 35.6, 936, PCIE4, 350,
     86},
    {"4090", "GeForce RTX 4090", "NVIDIA Ada whitepaper", 24, 165.2, 82.6, 1008, PCIE4, 450, 89},
    {"5090", "GeForce RTX 5090", "NVIDIA RTX Blackwell whitepaper", 32, 209.5, 104.8, 1792, PCIE5,
     575, 120},
    {"a10", "A10", "NVIDIA A10 datasheet", 24, 125, 31.2, 600, PCIE4, 150, 86},
    {"l4", "L4", "NVIDIA L4 datasheet, half of its sparse rate", 24, 121, 30.3, 300, PCIE4, 72, 89},
    {"a100-40", "A100 40 GB PCIe", "NVIDIA A100 datasheet", 40, 312, 19.5, 1555, PCIE4, 250, 80},
    {"a100-80", "A100 80 GB PCIe", "NVIDIA A100 datasheet", 80, 312, 19.5, 1935, PCIE4, 300, 80},
    {"h100", "H100 80 GB SXM", "NVIDIA H100 datasheet, half of its sparse rate", 80, 989.5, 67,
     3350, PCIE5, 700, 90},
    {"h200", "H200 141 GB SXM", "NVIDIA H200 datasheet, half of its sparse rate", 141, 989.5, 67,
     4800, PCIE5, 700, 90},
};
#define N_CARDS (sizeof cards / sizeof *cards)

static void set_share(struct machine *m, enum machine_figure figure, double peak, double share,
                      const struct card *card, const char *unit)
{
    char source[MACHINE_SOURCE_BYTES];
    double scale = figure == MACHINE_BF16 || figure == MACHINE_FP32 ? 1e12 : 1e9;
    snprintf(source, sizeof source, "%.0f %% (assumed) of %g %s by %s", 100 * share, peak, unit,
             figure == MACHINE_LINK ? "PCI Express with 16 lanes" : card->source);
    machine_set(m, figure, peak * scale * share, source);
}

bool machine_take_card(struct machine *m, const char *name)
{
    const struct card *card = cards;
    while (card < cards + N_CARDS && strcmp(card->name, name) != 0)
        card++;
    if (card == cards + N_CARDS)
        return false;
    snprintf(m->name, sizeof m->name, "%s", card->text);
    m->has_gpu = true;
    m->capability = card->capability;
    machine_set(m, MACHINE_GPU_MEMORY, card->gib * 0x1p30, card->source);
    machine_set(m, MACHINE_POWER, card->watts, card->source);
    set_share(m, MACHINE_BF16, card->bf16, PRODUCTS_SHARE, card, "TFLOP/s");
    set_share(m, MACHINE_FP32, card->fp32, PRODUCTS_SHARE, card, "TFLOP/s");
    set_share(m, MACHINE_BANDWIDTH, card->bandwidth, MEMORY_SHARE, card, "GB/s");
    set_share(m, MACHINE_LINK, card->link, LINK_SHARE, card, "GB/s");
    return true;
}

const char *machine_card_names(char *buffer, size_t bytes)
{
    size_t used = 0;
    buffer[0] = 0;
    for (size_t i = 0; i < N_CARDS && used < bytes; i++)
        used += (size_t)snprintf(buffer + used, bytes - used, "%s%s", i ? ", " : "", cards[i].name);
    return buffer;
}

void machine_set(struct machine *m, enum machine_figure figure, double value, const char *source)
{
    m->figures[figure].value = value;
    snprintf(m->figures[figure].source, sizeof m->figures[figure].source, "%s", source);
}
