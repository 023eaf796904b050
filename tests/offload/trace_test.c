/*
 * Traces: of an executor whose drive is slow and out of order, of a training with several
 * micro-batches, and of a step that is only predicted. `trace_test FILE` checks a file and says
 * what is in it.
 */
#include "offload/trace.h"
#include "trace_check.h"
#include "trainings.h"

static void record(struct zinf_trace *trace, const char *name, enum zinf_lane lane, uint32_t number,
                   uint32_t cause, uint64_t begin, uint64_t end)
{
    struct zinf_trace_op op = {.name = name,
                               .lane = lane,
                               .micro = lane == ZINF_LANE_DEVICE ? (int16_t)(number % 2) : -1,
                               .number = number,
                               .cause = cause,
                               .begin_ns = begin,
                               .end_ns = end};
    zinf_trace_op(trace, &op);
}

static bool contains(const char *path, const char *text)
{
    char *content = NULL;
    size_t bytes;
    CHECKF(!zinf_file_read(path, 1 << 26, &content, &bytes), "%s", zinf_error());
    bool found = content && strstr(content, text);
    free(content);
    return found;
}

/* Two reads that overlap, a product that waits for the later one, an update that waits for it. */
static void test_what_a_lane_waits_for(void)
{
    struct zinf_trace *trace = NULL;
    char path[600];
    CHECKF(!zinf_trace_create(&trace, in_work(path, "made.json")), "%s", zinf_error());
    record(trace, "read a", ZINF_LANE_READ, 0, ZINF_TRACE_NO_CAUSE, 100000, 300000);
    record(trace, "read b", ZINF_LANE_READ, 1, ZINF_TRACE_NO_CAUSE, 200000, 500000);
    record(trace, "product", ZINF_LANE_DEVICE, 2, 1, 510000, 700000);
    record(trace, "update", ZINF_LANE_HOST, 3, 2, 700000, 900000);
    zinf_trace_program(trace, "gradients", 100000, 1000000);
    zinf_trace_mark(trace, "step 1", 50000, 1100000);
    CHECKF(!zinf_trace_close(trace), "%s", zinf_error());
    struct trace_seen seen = trace_check(path);
    CHECKF(seen.arrows == 2, "%d arrows", seen.arrows);
    CHECKF(seen.marks == 2 && seen.micros == 1, "%d marks, %d micro-batches", seen.marks,
           seen.micros);
    CHECKF(seen.rows == 6, "%d rows: steps, micro-batches, read, read 2, device, host", seen.rows);
    /* the device before, about to start and after; the host before and after; read after */
    CHECKF(seen.idle == 6, "%d gaps", seen.idle);
    CHECK(contains(path, "\"waits for read b\",\"ts\":50.000,\"dur\":400.000"));
    CHECK(contains(path, "\"is about to start\",\"ts\":450.000,\"dur\":10.000"));
    CHECK(contains(path, "\"waits for product\",\"ts\":50.000,\"dur\":600.000"));
}

/* Seats that end in another order than they are shown in, on one clock. */
static void test_seats_in_one_file(void)
{
    struct zinf_trace_file *file = NULL;
    struct zinf_trace *traces[2] = {NULL, NULL};
    char path[600];
    CHECKF(!zinf_trace_file_create(&file, in_work(path, "seats.json"), 2), "%s", zinf_error());
    for (uint32_t s = 0; s < 2; s++) {
        CHECKF(!zinf_trace_join(&traces[s], file, s), "%s", zinf_error());
        record(traces[s], "read a", ZINF_LANE_READ, 0, ZINF_TRACE_NO_CAUSE, 100000 + s * 50000,
               300000);
        record(traces[s], "product", ZINF_LANE_DEVICE, 1, 0, 310000, 400000);
        zinf_trace_program(traces[s], "gradients", 100000, 500000);
    }
    CHECK(!zinf_trace_close(traces[1]) && !zinf_trace_close(traces[0]));
    CHECKF(!zinf_trace_file_close(file), "%s", zinf_error());
    struct trace_seen seen = trace_check(path);
    CHECKF(seen.arrows == 2 && seen.marks == 2, "%d arrows, %d marks", seen.arrows, seen.marks);
    CHECK(contains(path, "\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"seat 0\"}"));
    CHECK(contains(path, "\"pid\":2,\"name\":\"process_name\",\"args\":{\"name\":\"seat 1\"}"));
    CHECK(contains(path, "\"name\":\"read a\",\"ts\":0.000,\"dur\":200.000"));
    CHECK(contains(path, "\"name\":\"read a\",\"ts\":50.000,\"dur\":150.000"));
}

/* Operations whose cause was dropped have no arrow, and no arrow is half one. */
static void test_the_ring_keeps_the_last(void)
{
    struct zinf_trace *trace = NULL;
    char path[600];
    CHECKF(!zinf_trace_create(&trace, in_work(path, "ring.json")), "%s", zinf_error());
    uint64_t now = 1000;
    for (uint32_t run = 0; run < 3000; run++) {
        for (uint32_t i = 0; i < 100; i++, now += 50)
            record(trace, "op", i % 2 ? ZINF_LANE_DEVICE : ZINF_LANE_HOST, i,
                   i ? i - 1 : ZINF_TRACE_NO_CAUSE, now, now + 50);
        zinf_trace_program(trace, "p", now - 5000, now);
    }
    CHECKF(!zinf_trace_close(trace), "%s", zinf_error());
    struct trace_seen seen = trace_check(path);
    CHECKF(seen.spans > 1 << 18 && seen.arrows > 200000, "%d spans, %d arrows", seen.spans,
           seen.arrows);
}

static struct trace_seen train_with(const struct setting *s, const char *name, char path[600])
{
    struct setting traced = *s;
    struct outcome out;
    char extra[700];
    snprintf(extra, sizeof extra, ", \"trace\": \"%s\"%s", in_work(path, name),
             s->extra ? s->extra : "");
    traced.extra = extra;
    run(&traced, name, &out);
    CHECK(!out.failed);
    return trace_check(path);
}

static void test_a_training_on_the_drive(void)
{
    struct zinf_aio_faults faults = {
        .seed = 3, .short_ppm = 300000, .delay_ppm = 500000, .delay_us = 500, .reorder = true};
    struct setting s = {.accumulation = 3, .order = "micro-major", .faults = &faults};
    char path[600];
    struct trace_seen seen = train_with(&s, "drive.json", path);
    CHECKF(seen.arrows > 100 && seen.idle > 50, "%d arrows, %d gaps", seen.arrows, seen.idle);
    CHECKF(seen.micros >= 3 * 2 * trainings.steps, "%d micro-batches", seen.micros);
    CHECKF(seen.marks >= 2 * trainings.steps, "%d marks", seen.marks);
    CHECK(contains(path, "\"read 2\"") && contains(path, "\"step 4\"") &&
          contains(path, "\"micro-batch 2\"") && contains(path, "\"waits for read "));
}

static void test_every_schedule(void)
{
    for (int i = 0; i < 5; i++) {
        struct setting s = {.schedule = schedules[i], .clip = i == 4 ? 0 : 1};
        char path[600];
        struct trace_seen seen = train_with(&s, schedules[i], path);
        CHECKF(seen.arrows > 50, "%s: %d arrows", schedules[i], seen.arrows);
    }
}

static void test_a_predicted_step(void)
{
    struct setting s = {.accumulation = 2};
    struct zinf_config *config = configure(&s);
    char path[600];
    struct zinf_estimate_options options = {.trainer = trainer_options(&s, config),
                                            .trace = in_work(path, "predicted.json")};
    struct zinf_estimate estimate;
    CHECKF(!zinf_estimate(&estimate, &options), "%s", zinf_error());
    struct trace_seen seen = trace_check(path);
    CHECKF(seen.arrows > 10 && seen.micros > 1, "%d arrows, %d micro-batches", seen.arrows,
           seen.micros);
    CHECK(contains(path, "\"step, as predicted\""));
    zinf_config_destroy(config);
}

static int check_file(const char *path)
{
    struct trace_seen seen = trace_check(path);
    printf("# %d spans in %d rows, %d arrows, %d gaps, %d micro-batches, %d marks\n", seen.spans,
           seen.rows, seen.arrows, seen.idle, seen.micros, seen.marks);
    return tap_case_failures != 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return check_file(argv[1]);
    begin_trainings("trace", &(struct trainings){
                                 .shape = {.arch = "gpt2",
                                           .layers = 3,
                                           .hidden = 32,
                                           .heads = 2,
                                           .vocab = 101,
                                           .context = 16},
                                 .steps = 4,
                                 .seq = 16,
                                 .batch = 1,
                                 .sub_group = 4096,
                             });
    TAP_RUN(test_what_a_lane_waits_for);
    TAP_RUN(test_seats_in_one_file);
    TAP_RUN(test_the_ring_keeps_the_last);
    TAP_RUN(test_a_training_on_the_drive);
    TAP_RUN(test_every_schedule);
    TAP_RUN(test_a_predicted_step);
    remove_work();
    return tap_done();
}
