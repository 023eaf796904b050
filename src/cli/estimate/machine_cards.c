/*
 * machine_cards: cards as their makers describe them. Dense rates, with sums in fp32; what a
 * training reaches of them is an assumption, and said to be one. The figures are from NVIDIA's
 * "Ampere GA102 GPU Architecture", V2.0, Appendix A; "Ada GPU Architecture", V2.1, Appendix A;
 * "RTX Blackwell GPU Architecture", V1.1, Appendix A; and the data sheets of A10, L4 (242 TFLOP/s
 * in bf16 with sparsity), A100 (1758950), H100 and H200 (1,979 TFLOP/s with sparsity, SXM columns)
 * and the others that are named. T4 and V100 have no bf16: the rate is that of fp16. Memory is what
 * nvidia-smi prints of it, in MiB, with ECC where the card comes with it switched on.
 */
#include "cli/estimate/machine.h"

#include <stdio.h>

/* Shares of what the maker says. Of products: what large ones reach, chosen so that whole steps
 * that others have published are met (tests/bench/published.sh has them with their sources).
 * GeForce cards hold clocks above those that their rates are stated for: LLMQ's whole steps have 81
 * % of 4090's rate, 77 % of 5090's, 82 % of 5060 Ti's. Cards of the data centre do not: 65 % of
 * H100's, 72 % of PRO 6000's; llm.c has 60 % of A100's. L40S, with a third of a 4090's power beside
 * its rate, has 49 %; of other cards with as little (RTX 6000 Ada, T4, A10, L4) the same is
 * assumed, and of those that nothing is known of what their like have. zinf bench gemm, attention
 * and pcie have the figures of a card that is there. */
#define ADA 0.95
#define GEFORCE_50 0.85
#define PRO_50 0.88
#define AMPERE 0.8
#define HOPPER 0.72
#define BLACKWELL 0.7
#define COOL 0.64
#define MEMORY_SHARE 0.8
#define LINK_SHARE 0.8
/* Sixteen lanes, each way, after line coding: 8, 16 and 32 GT/s (PCI-SIG, PCI Express
 * Base 3.0, 4.0, 5.0); GH200's own link between CPU and GPU has 900 GB/s for both ways. */
#define PCIE3 15.75
#define PCIE4 31.5
#define PCIE5 63.0
#define C2C 450.0

/* What an update on the CPU reads and writes a second. ZeRO-Offload's CPU Adam (Ren et al., ATC'21,
 * table 4) has 93 to 145 GB/s at 28 to 32 bytes a parameter on two sockets with twelve channels of
 * DDR4; Grace has twice the memory's rate of those. Desktops keep what machine.c assumes. */
#define SERVER_OPTIMIZER 1e11
#define GRACE_OPTIMIZER 2e11

static const struct card {
    const char *name, *text, *source;
    double mib, bf16, fp32, bandwidth, link, watts; /* TFLOP/s, GB/s */
    int capability;
    double products; /* share of the rates */
    enum { DESKTOP, SERVER, GRACE } host;
} cards[] = {
    {"3090", "GeForce RTX 3090", "NVIDIA Ampere GA102 whitepaper", 24576, 71, 35.6, 936, PCIE4, 350,
     86, AMPERE, DESKTOP},
    {"4060ti", "GeForce RTX 4060 Ti 16 GB", "NVIDIA Ada whitepaper", 16380, 44.1, 22.1, 288,
     PCIE4 / 2, 165, 89, ADA, DESKTOP},
    {"4080", "GeForce RTX 4080", "NVIDIA Ada whitepaper", 16376, 97.5, 48.7, 717, PCIE4, 320, 89,
     ADA, DESKTOP},
    {"4090", "GeForce RTX 4090", "NVIDIA Ada whitepaper", 24564, 165.2, 82.6, 1008, PCIE4, 450, 89,
     ADA, DESKTOP},
    {"5060ti", "GeForce RTX 5060 Ti 16 GB", "NVIDIA RTX Blackwell whitepaper", 16311, 47.4, 23.7,
     448, PCIE5 / 2, 180, 120, GEFORCE_50, DESKTOP},
    {"5070ti", "GeForce RTX 5070 Ti", "NVIDIA RTX Blackwell whitepaper", 16303, 87.9, 43.9, 896,
     PCIE5, 300, 120, GEFORCE_50, DESKTOP},
    {"5080", "GeForce RTX 5080", "NVIDIA RTX Blackwell whitepaper", 16303, 112.6, 56.3, 960, PCIE5,
     360, 120, GEFORCE_50, DESKTOP},
    {"5090", "GeForce RTX 5090", "NVIDIA RTX Blackwell whitepaper", 32607, 209.5, 104.8, 1792,
     PCIE5, 575, 120, GEFORCE_50, DESKTOP},
    {"a6000", "RTX A6000", "NVIDIA Ampere GA102 whitepaper", 49140, 154.8, 38.7, 768, PCIE4, 300,
     86, AMPERE, DESKTOP},
    {"6000-ada", "RTX 6000 Ada", "NVIDIA RTX 6000 Ada datasheet, a quarter of its rate in FP8",
     49140, 364.2, 91.1, 960, PCIE4, 300, 89, COOL, DESKTOP},
    {"pro-6000", "RTX PRO 6000 Blackwell", "NVIDIA RTX Blackwell PRO whitepaper", 97887, 503.8, 126,
     1792, PCIE5, 600, 120, PRO_50, DESKTOP},
    {"t4", "T4", "NVIDIA T4 datasheet, fp16", 15360, 65, 8.1, 320, PCIE3, 70, 75, COOL, SERVER},
    {"v100-16", "V100 16 GB SXM2", "NVIDIA V100 datasheet, fp16", 16384, 125, 15.7, 900, PCIE3, 300,
     70, AMPERE, SERVER},
    {"v100-32", "V100 32 GB SXM2", "NVIDIA V100 datasheet, fp16", 32768, 125, 15.7, 900, PCIE3, 300,
     70, AMPERE, SERVER},
    {"a10", "A10", "NVIDIA A10 datasheet", 23028, 125, 31.2, 600, PCIE4, 150, 86, COOL, SERVER},
    {"l4", "L4", "NVIDIA L4 datasheet, half of its sparse rate", 23034, 121, 30.3, 300, PCIE4, 72,
     89, COOL, SERVER},
    {"l40s", "L40S", "NVIDIA L40S datasheet", 46068, 362, 91.6, 864, PCIE4, 350, 89, COOL, SERVER},
    {"a100-40", "A100 40 GB PCIe", "NVIDIA A100 datasheet", 40960, 312, 19.5, 1555, PCIE4, 250, 80,
     AMPERE, SERVER},
    {"a100-80", "A100 80 GB PCIe", "NVIDIA A100 datasheet", 81920, 312, 19.5, 1935, PCIE4, 300, 80,
     AMPERE, SERVER},
    {"a100-sxm-40", "A100 40 GB SXM", "NVIDIA A100 datasheet", 40960, 312, 19.5, 1555, PCIE4, 400,
     80, AMPERE, SERVER},
    {"a100-sxm-80", "A100 80 GB SXM", "NVIDIA A100 datasheet", 81920, 312, 19.5, 2039, PCIE4, 400,
     80, AMPERE, SERVER},
    {"h100", "H100 80 GB SXM", "NVIDIA H100 datasheet, half of its sparse rate", 81559, 989.5, 67,
     3350, PCIE5, 700, 90, HOPPER, SERVER},
    {"h200", "H200 141 GB SXM", "NVIDIA H200 datasheet, half of its sparse rate", 143771, 989.5, 67,
     4800, PCIE5, 700, 90, HOPPER, SERVER},
    {"gh200", "GH200 96 GB", "NVIDIA GH200 datasheet, half of its sparse rate", 97871, 989.5, 67,
     4000, C2C, 900, 90, HOPPER, GRACE},
    {"b200", "B200 180 GB SXM", "NVIDIA HGX B200 datasheet, half of its sparse rate", 183359, 2250,
     75, 7700, PCIE5, 1000, 100, BLACKWELL, SERVER},
};
#define N_CARDS (sizeof cards / sizeof *cards)

const char *machine_word(size_t i)
{
    return i < N_CARDS ? cards[i].name : i == N_CARDS ? "cpu" : NULL;
}

static void set_share(struct machine *m, enum machine_figure figure, double peak, double share,
                      const struct card *card, const char *unit)
{
    char source[MACHINE_SOURCE_BYTES];
    double scale = figure == MACHINE_BF16 || figure == MACHINE_FP32 ? 1e12 : 1e9;
    snprintf(source, sizeof source, "%.0f %% (assumed) of %g %s by %s", 100 * share, peak, unit,
             figure == MACHINE_LINK && card->link != C2C ? "PCI Express" : card->source);
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
    machine_set(m, MACHINE_GPU_MEMORY, card->mib * 0x1p20, "as nvidia-smi says");
    if (card->host != DESKTOP)
        machine_set(m, MACHINE_OPTIMIZER, card->host == GRACE ? GRACE_OPTIMIZER : SERVER_OPTIMIZER,
                    card->host == GRACE ? "assumed of Grace's RAM" : "assumed of a server's RAM");
    machine_set(m, MACHINE_POWER, card->watts, card->source);
    set_share(m, MACHINE_BF16, card->bf16, card->products, card, "TFLOP/s");
    set_share(m, MACHINE_FP32, card->fp32, card->products, card, "TFLOP/s");
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
