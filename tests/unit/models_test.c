/* Models from folders: names, versions, what is broken, what changes while it is read, limits,
 * statistics. Most are tiny: each output is the sum of four inputs times a value that tells which
 * files they were made of. */
#include "engine/engine_bench.h"
#include "models_internal.h"
#include "nw_random.h"
#include "nw_write.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CLASSES = 3, PATH_BYTES = 512 };

/* ---- folders ---- */

static char root[64];

static void remove_root(void) {
    char command[300];
    snprintf(command, sizeof command, "chmod -R u+rwx '%s'*; rm -rf '%s' '%s-beside'", root, root,
             root);
    if (root[0])
        ck_assert_int_eq(system(command), 0);
    root[0] = '\0';
}

static void make_root(void) {
    snprintf(root, sizeof root, "/tmp/xnord-models-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

/* The path of that name in the root; of several at a time, up to four. */
static const char *at(const char *name) {
    static _Thread_local char paths[4][PATH_BYTES];
    static _Thread_local unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_BYTES, "%s/%s", root, name);
    return path;
}

static void make_folder(const char *name) {
    ck_assert_msg(!mkdir(at(name), 0777), "%s", name);
}

static void write_bytes(const char *folder, const char *file, const void *bytes, size_t length) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", at(folder), file);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    ck_assert_msg(fd >= 0, "%s", path);
    ck_assert_int_eq(write(fd, bytes, length), (ssize_t)length);
    close(fd);
}

static void write_text(const char *folder, const char *file, const char *text) {
    write_bytes(folder, file, text, strlen(text));
}

#define TINY(members, output)                                                                      \
    "{\"format\": \"xnord-network/1\", " members                                                   \
    "\"input\": {\"name\": \"image\", \"datatype\": \"FP32\", \"shape\": [1, 2, 2]}, "             \
    "\"output\": {\"name\": \"logits\"" output "}, "                                               \
    "\"layers\": [{\"op\": \"conv\", \"name\": \"c\", \"mode\": \"float\"}]}"
static const char plain[] = TINY("", "");
static const char labelled[] = TINY("", ", \"labels\": \"labels.txt\"");

/* The tensors of a tiny model. */
static void tiny_tensors(float value, nw_files *out) {
    nw_net *net = nw_create(1, 2, 2);
    float values[4 * CLASSES];
    for (int i = 0; i < 4 * CLASSES; i++)
        values[i] = value;
    xn_layer *layer = nw_add(net, XN_OP_CONV, "c", NULL);
    layer->window.mode = XN_MODE_FLOAT;
    layer->weight = nw_tensor(net, values, CLASSES, 1, 2, 2);
    nw_write(net, NULL, out);
    nw_free(net);
}

static void write_tensors(const char *folder, float value) {
    nw_files files;
    tiny_tensors(value, &files);
    write_bytes(folder, "model.safetensors", files.tensors, files.tensors_length);
    nw_files_free(&files);
}

/* A folder that is there becomes a tiny model's. */
static void fill(const char *folder, const char *config, float value) {
    write_text(folder, "config.json", config);
    write_tensors(folder, value);
}

static void make_tiny(const char *folder, const char *config, float value) {
    make_folder(folder);
    fill(folder, config, value);
}

/* ---- a daemon's parts ---- */

static xn_config config;
static xn_engine *engine;
static xn_models *models;

static void configure(void) {
    config = fake_config();
    config.max_models = 100;
    config.versions.latest = 1;
    config.max_models_bytes = 1 << 30;
    config.max_elements = 1 << 26;
    config.max_output_bytes = 1 << 28;
    config.max_operations = INT64_C(1) << 40;
    config.threads = 2;
    snprintf(config.backend, sizeof config.backend, "ref");
    snprintf(config.model_repository, sizeof config.model_repository, "%s", root);
}

static void open_models(void) {
    xn_error error = {0};
    xn_status status = xn_engine_create(&config, &engine, &error);
    if (status == XN_OK)
        status = xn_models_create(&config, xn_engine_store(engine), &models, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
}

static void begin(void) {
    make_root();
    configure();
}

static void end(void) {
    xn_models_free(models);
    xn_engine_free(engine);
    models = NULL;
    engine = NULL;
    remove_root();
}

static void scan(void) {
    xn_error error = {0};
    ck_assert_msg(xn_models_scan(models, &error) == XN_OK, "%s", error.message);
}

static const xn_model *get(const char *name) {
    const xn_model *model = NULL;
    xn_error error = {0};
    xn_status status = xn_models_get(models, name, NULL, &model, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    return model;
}

static xn_status get_status(const char *name, const char *version, xn_error *error) {
    const xn_model *model = NULL;
    xn_status status = xn_models_get(models, name, version, &model, error);
    xn_model_release(model);
    return status;
}

static void expect_missing(const char *name, xn_status status, const char *says) {
    xn_error error = {0};
    xn_status got = get_status(name, NULL, &error);
    ck_assert_msg(got == status, "%s: %s: %s", name, xn_status_name(got), error.message);
    ck_assert_msg(strstr(error.message, says) != NULL, "no \"%s\" in: %s", says, error.message);
}

static void expect_load(const char *name, xn_status status, const char *says) {
    xn_error error = {0};
    xn_status got = xn_models_load(models, name, NULL, 0, NULL, 0, &error);
    ck_assert_msg(got == status, "%s: %s: %s", name, xn_status_name(got), error.message);
    ck_assert_msg(strstr(error.message, says) != NULL, "no \"%s\" in: %s", says, error.message);
}

static xn_model_item item_of(const char *name) {
    xn_model_item *items = NULL, found = {.version = "none"};
    size_t count = 0;
    ck_assert_int_eq(xn_models_list(models, &items, &count, NULL), XN_OK);
    for (size_t i = 0; i < count; i++) {
        ck_assert(!i || strcmp(items[i - 1].name, items[i].name) <= 0);
        if (!strcmp(items[i].name, name))
            found = items[i];
    }
    xn_mem_free(items);
    return found;
}

static void expect_item(const char *name, xn_model_state state, const char *version,
                        const char *reason) {
    xn_model_item item = item_of(name);
    ck_assert_msg(item.state == state && !strcmp(item.version, version), "%s: state %d, version %s",
                  name, (int)item.state, item.version);
    ck_assert_msg(strstr(item.reason, reason) && (*reason || !item.reason[0]), "%s: %s", name,
                  item.reason);
}

/* ---- inference ---- */

static void run(const xn_model *model, const void *input, int64_t images, void *output) {
    fake_run(engine, model->asset, &model->problem, input, images, output);
}

/* The value that a tiny model was made with. */
static float value_of(const xn_model *model) {
    const float input[4] = {1, 2, 3, 4};
    float output[CLASSES] = {0};
    run(model, input, 1, output);
    for (int i = 1; i < CLASSES; i++)
        ck_assert(output[i] == output[0]);
    return output[0] / 10;
}

static void expect_value(const char *name, const char *version, float value) {
    const xn_model *model = get(name);
    ck_assert_str_eq(model->version, version);
    ck_assert_float_eq(value_of(model), value);
    xn_model_release(model);
}

/* ---- what is served ---- */

/* A request that succeeded, without a cache of answers. */
static xn_model_sample success_of(int64_t images, int64_t total_ns, int64_t queue_ns,
                                  int64_t input_ns, int64_t infer_ns, int64_t output_ns,
                                  int64_t batch_requests) {
    return (xn_model_sample){.success = true,
                             .images = images,
                             .total_ns = total_ns,
                             .queue_ns = queue_ns,
                             .input_ns = input_ns,
                             .infer_ns = infer_ns,
                             .output_ns = output_ns,
                             .batch_requests = batch_requests};
}

START_TEST(tiny_model_is_described) {
    make_tiny("digits", labelled, 2);
    write_text("digits", "labels.txt", "zero\none\r\ntwo");
    open_models();
    expect_missing("digits", XN_ERR_LOADING, "still loading");
    expect_missing("other", XN_ERR_LOADING, "still loading");
    scan();
    expect_missing("other", XN_ERR_NOT_FOUND, "other");
    const xn_model *model = get("digits");
    ck_assert_str_eq(model->name, "digits");
    ck_assert_str_eq(model->version, "1");
    ck_assert_int_eq(model->max_batch_size, 1024);
    ck_assert_str_eq(model->input.name, "image");
    ck_assert_int_eq(model->input.datatype, XN_FP32);
    ck_assert_int_eq(model->input.elements, 4);
    ck_assert_int_eq(model->input.shape.rank, 3);
    ck_assert_int_eq(model->output_count, 1);
    const xn_model_end *output = &model->outputs[0];
    ck_assert_str_eq(output->name, "logits");
    ck_assert_int_eq(output->datatype, XN_FP32);
    ck_assert(output->shape.rank == 1 && output->shape.dims[0] == CLASSES);
    ck_assert_int_eq(output->elements, CLASSES);
    ck_assert_int_eq(output->label_count, 3);
    ck_assert_str_eq(output->labels[0], "zero");
    ck_assert_str_eq(output->labels[1], "one");
    ck_assert_str_eq(output->labels[2], "two");
    ck_assert_int_eq(xn_problem_output_elements(&model->problem), CLASSES);
    ck_assert_float_eq(value_of(model), 2);
    xn_model_release(model);
    expect_item("digits", XN_MODEL_READY, "1", "");
    xn_error error = {0};
    ck_assert_int_eq(get_status("digits", "", &error), XN_OK);
    ck_assert_int_eq(get_status("digits", "1", &error), XN_OK);
    ck_assert_int_eq(get_status("digits", "2", &error), XN_ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(error.message, "version 1 serves"));
}
END_TEST

/* What a version's warm-up sees: its name does not serve it yet. */
static int warm_ups;
static xn_status warm_up_status;

static xn_status see_warm_up(void *context, const xn_model *model, int64_t images,
                             xn_error *error) {
    ck_assert_ptr_eq(context, engine);
    ck_assert_int_eq(images, config.max_batch_images);
    ck_assert(value_of(model) == 2 || value_of(model) == 3);
    if (warm_ups++)
        expect_value("a", "1", 2); /* the one before serves on */
    else
        expect_missing("a", XN_ERR_LOADING, "being loaded");
    expect_item("a", warm_ups > 1 ? XN_MODEL_READY : XN_MODEL_LOADING, warm_ups > 1 ? "1" : "", "");
    return warm_up_status ? xn_fail(error, warm_up_status, "model", "cold") : XN_OK;
}

START_TEST(serves_once_it_is_warm) {
    warm_up_status = XN_OK;
    make_tiny("a", plain, 2);
    open_models();
    xn_models_set_warm_up(models, see_warm_up, engine);
    scan();
    expect_value("a", "1", 2);
    fill("a", plain, 3);
    warm_up_status = XN_ERR_DRAINING;
    expect_load("a", XN_ERR_DRAINING, "cold");
    expect_value("a", "1", 2);
    warm_up_status = XN_OK;
    expect_load("a", XN_OK, "");
    expect_value("a", "1", 3);
    ck_assert_int_eq(warm_ups, 3);
}
END_TEST

/* Random networks, written in all ways, compute from their folders what they compute in memory. */
START_TEST(random_networks) {
    enum { NETWORKS = 12, IMAGES = 2 };
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    nw_net *nets[NETWORKS];
    char name[16];
    for (int i = 0; i < NETWORKS; i++) {
        snprintf(name, sizeof name, "net-%d", i);
        make_folder(name);
        nets[i] = nw_random_net(&rng, true);
        nw_write_folder(nets[i], &rng, at(name));
    }
    open_models();
    scan();
    for (int i = 0; i < NETWORKS; i++) {
        snprintf(name, sizeof name, "net-%d", i);
        const xn_model *model = get(name);
        xn_network *network = nw_lower(nets[i]);
        size_t in = IMAGES * network->input_bytes, out = IMAGES * network->output_bytes;
        ck_assert_uint_eq(xn_problem_input_bytes(&model->problem), network->input_bytes);
        ck_assert_uint_eq(xn_problem_output_bytes(&model->problem), network->output_bytes);
        unsigned char *input = xn_mem_zalloc(1, in), *output = xn_mem_zalloc(1, out);
        if (nets[i]->params.input_datatype == XN_UINT8)
            for (size_t k = 0; k < in; k++)
                input[k] = (unsigned char)xn_rng_below(&rng, 4);
        else if (nets[i]->params.input_datatype == XN_FP32)
            for (size_t k = 0; k < in / sizeof(float); k++)
                ((float *)(void *)input)[k] = (float)((int)xn_rng_below(&rng, 17) - 8) * 0.25f;
        run(model, input, IMAGES, output);
        float *expected = nw_run(network, input, IMAGES);
        int64_t elements = 0;
        for (int o = 0; o < model->output_count; o++)
            elements += model->outputs[o].elements;
        ck_assert_int_eq(elements, network->output_elements);
        ck_assert_msg(!memcmp(output, expected, out), "seed %llu: network %d",
                      (unsigned long long)xn_test_seed() + (unsigned)_i, i);
        xn_mem_free(expected);
        xn_mem_free(output);
        xn_mem_free(input);
        xn_network_free(network);
        xn_model_release(model);
        nw_free(nets[i]);
    }
}
END_TEST

START_TEST(a_config_beside_versions_counts) {
    make_tiny("top", plain, 5);
    make_tiny("top/2", plain, 2);
    open_models();
    scan();
    expect_value("top", "1", 5);
}
END_TEST

/* The versions of "m" that serve, as the index, the metadata and requests see them. */
static void expect_versions(const char *list) {
    char served[300] = "", listed[300] = "";
    xn_model_versions versions;
    xn_model_item *items = NULL;
    size_t count = 0;
    xn_models_versions(models, "m", &versions);
    for (int i = 0; i < versions.count; i++) {
        const xn_model *model = NULL;
        ck_assert_int_eq(xn_models_get(models, "m", versions.names[i], &model, NULL), XN_OK);
        ck_assert_str_eq(model->version, versions.names[i]);
        ck_assert_float_eq(value_of(model), (float)atoi(versions.names[i]));
        xn_model_release(model);
        sprintf(served + strlen(served), " %s", versions.names[i]);
    }
    ck_assert_int_eq(xn_models_list(models, &items, &count, NULL), XN_OK);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(items[i].name, "m") && items[i].state == XN_MODEL_READY)
            sprintf(listed + strlen(listed), " %s", items[i].version);
    xn_mem_free(items);
    ck_assert_str_eq(served, list);
    ck_assert_str_eq(listed, list);
    if (versions.count)
        expect_value("m", versions.names[versions.count - 1],
                     (float)atoi(versions.names[versions.count - 1]));
}

static void make_version(int number) {
    char folder[16];
    snprintf(folder, sizeof folder, "m/%d", number);
    make_tiny(folder, plain, (float)number);
}

static void open_with_policy(const char *policy) {
    ck_assert_int_eq(xn_version_policy_parse(policy, &config.versions, NULL), XN_OK);
    open_models();
}

/* With 2, 3, 9, 10 in its folder, and what are no versions; then 11 comes, then 3 goes. */
static const struct {
    const char *policy, *first, *second, *third;
} policies[] = {
    {"latest:1", " 10", " 11", " 11"},
    {"latest:2", " 9 10", " 10 11", " 10 11"},
    {"latest:4", " 2 3 9 10", " 3 9 10 11", " 2 9 10 11"},
    {"latest:32", " 2 3 9 10", " 2 3 9 10 11", " 2 9 10 11"},
    {"all", " 2 3 9 10", " 2 3 9 10 11", " 2 9 10 11"},
    {"specific:3,9,11,700", " 3 9", " 3 9 11", " 9 11"},
    {"specific:9", " 9", " 9", " 9"},
};

START_TEST(policies_serve) {
    static const int numbers[] = {9, 2, 10, 3};
    make_folder("m");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        make_version(numbers[i]);
    make_tiny("m/012", plain, 12);
    make_tiny("m/12x", plain, 12);
    make_tiny("m/1000000000000000000", plain, 1000); /* 19 digits */
    make_tiny("m/-13", plain, 13);
    make_tiny("m/0", plain, 14);
    open_with_policy(policies[_i].policy);
    scan();
    expect_versions(policies[_i].first);
    make_version(11);
    expect_load("m", XN_OK, "");
    expect_versions(policies[_i].second);
    ck_assert_int_eq(rename(at("m/3"), at("m/.3")), 0);
    scan();
    expect_versions(policies[_i].third);
    ck_assert_int_eq(xn_models_unload(models, "m", NULL), XN_OK);
    expect_versions("");
    expect_missing("m", XN_ERR_LOADING, "unloaded by a request");
    ck_assert_int_eq(models->bytes, 0);
    expect_load("m", XN_OK, "");
    expect_versions(policies[_i].third);
}
END_TEST

START_TEST(policies_without_a_version) {
    make_folder("m");
    make_version(1);
    open_with_policy(_i ? "specific:2" : "all");
    if (_i) {
        expect_load("m", XN_ERR_MALFORMED, "none of the versions that --version-policy names");
        return;
    }
    for (int i = 2; i <= XN_VERSIONS_MAX; i++)
        make_version(i);
    expect_load("m", XN_OK, "");
    make_version(XN_VERSIONS_MAX + 1);
    expect_load("m", XN_ERR_LIMIT, "more than 32 versions");
}
END_TEST

/* What is wrong with one version leaves the others, and is told of it alone. */
START_TEST(a_broken_version_leaves_the_others) {
    xn_error error = {0};
    make_folder("m");
    make_version(1);
    make_version(2);
    make_tiny("outside", plain, 3);
    open_with_policy("latest:2");
    scan();
    expect_versions(" 1 2");
    ck_assert_int_eq(symlink("/usr", at("m/3")), 0); /* leads out of the repository */
    expect_load("m", XN_ERR_MALFORMED, "leads out of");
    expect_versions(" 1 2");
    ck_assert_int_eq(get_status("m", "3", &error), XN_ERR_LOADING);
    ck_assert_ptr_nonnull(
        strstr(error.message, "version 3 of model \"m\" is not ready: 3 is a link"));
    ck_assert_int_eq(get_status("m", "4", &error), XN_ERR_NOT_FOUND);
    ck_assert_int_eq(get_status("m", "02", &error), XN_ERR_NOT_FOUND);
    ck_assert_int_eq(get_status("m", "99999999999999999999", &error), XN_ERR_NOT_FOUND);
    ck_assert_int_eq(unlink(at("m/3")), 0);
    ck_assert_int_eq(symlink("../outside", at("m/3")), 0); /* stays in it */
    scan();
    expect_versions(" 2 3");
    write_text("m/3", "config.json", "{");
    scan();
    expect_versions(" 2 3"); /* what serves serves on */
}
END_TEST

/* ---- what is broken ---- */

static const char half_config[] = "{\"format\": \"xnord-network/1\"";
static const char no_tensors[] = "\2\0\0\0\0\0\0\0{}";
static const char wide[] =
    "{\"format\": \"xnord-network/1\", \"input\": {\"name\": \"i\", \"datatype\": \"FP32\", "
    "\"shape\": [7, 2, 2]}, \"output\": {\"name\": \"o\"}, \"layers\": [{\"op\": \"conv\", "
    "\"name\": \"c\", \"mode\": \"float\"}]}";

static void break_config(const char *folder) {
    write_text(folder, "config.json", half_config);
}

static void break_tensors(const char *folder) {
    write_bytes(folder, "model.safetensors", no_tensors, sizeof no_tensors - 1);
}

/* What stands in the place of a model's file. */
typedef enum {
    AS_IT_IS,
    GONE,
    BYTES, /* `with` */
    HOLE,  /* that long, to be refused unread */
    FIFO,
    FOLDER,
    LINK,   /* to `with` */
    BESIDE, /* a link to the same file in a folder beside the repository */
    TO_FIFO /* a link to one in its own folder */
} damage;

#define CONFIG "config.json"
#define TENSORS "model.safetensors"
#define LABELS "labels.txt"
#define OUT " is a link that leads out"

static const char elsewhere[] = TINY("", ", \"labels\": \"../good/labels.txt\"");
static const char above[] = TINY("", ", \"labels\": \"..\"");

/* status 0: malformed. */
static const struct {
    const char *name, *config, *file;
    damage damage;
    const char *with, *says;
    xn_status status;
} broken[] = {
    {"config", half_config, "", AS_IT_IS, "", "config.json: ", 0},
    {"tensors", plain, TENSORS, BYTES, "\2", "it has no tensor weight", 0},
    {"no-tensors", plain, TENSORS, GONE, "", "no model.safetensors", 0},
    {"shape", wide, "", AS_IT_IS, "", "layer", XN_ERR_GEOMETRY},
    {"fifo", plain, CONFIG, FIFO, "", "config.json is a FIFO", 0},
    {"folder", plain, TENSORS, FOLDER, "", "model.safetensors is a directory", 0},
    {"config-link", plain, CONFIG, BESIDE, "", CONFIG OUT, 0},
    {"tensors-link", plain, TENSORS, BESIDE, "", "safetensors" OUT, 0},
    {"link-out", plain, CONFIG, LINK, "/etc/passwd", CONFIG OUT, 0},
    {"dangling", plain, TENSORS, LINK, "../nothing/here", "is a link to what is not there", 0},
    {"loop", plain, CONFIG, LINK, CONFIG, "config.json is a link that leads to itself", 0},
    {"fifo-link", plain, CONFIG, TO_FIFO, "", "config.json is a FIFO", 0},
    {"many-labels", labelled, LABELS, BYTES, "a\nb\nc\nd\n", "labels.txt: ", 0},
    {"no-labels", labelled, "", AS_IT_IS, "", "no labels.txt", 0},
    {"labels-link", labelled, LABELS, LINK, "/etc/passwd", "labels.txt is a link", 0},
    {"labels-elsewhere", elsewhere, "", AS_IT_IS, "", "config.json: ", 0},
    {"labels-above", above, "", AS_IT_IS, "", "labels", 0},
    {"large-config", plain, CONFIG, HOLE, "", "it may have", 0},
    {"large-tensors", plain, TENSORS, HOLE, "", "--max-models-bytes", XN_ERR_LIMIT},
    {"version-link", NULL, "7", LINK, "/tmp", "7" OUT, 0},
    {"no-config", NULL, "", AS_IT_IS, "", "there is no config.json", 0},
};
enum { BROKEN = sizeof broken / sizeof *broken };

static void damage_file(int number, const char *path) {
    const char *with = broken[number].with, *file = broken[number].file;
    const bool tensors = !strcmp(file, TENSORS);
    char beside[PATH_BYTES];
    snprintf(beside, sizeof beside, "../../%s-beside/good/%s", strrchr(root, '/') + 1, file);
    if (broken[number].damage == BYTES && tensors)
        break_tensors(broken[number].name);
    else if (broken[number].damage == BYTES)
        write_text(broken[number].name, file, with);
    else if (broken[number].damage == HOLE)
        ck_assert(!truncate(path, tensors ? (off_t)1 << 40 : XN_MODEL_CONFIG_BYTES + 1));
    else if (broken[number].damage == FIFO)
        ck_assert(!unlink(path) && !mkfifo(path, 0666));
    else if (broken[number].damage == FOLDER)
        ck_assert(!unlink(path) && !mkdir(path, 0777));
    else if (broken[number].damage != AS_IT_IS)
        unlink(path);
    if (broken[number].damage == LINK)
        ck_assert(!symlink(with, path));
    if (broken[number].damage == BESIDE)
        ck_assert(!symlink(beside, path));
    if (broken[number].damage == TO_FIFO)
        ck_assert(!symlink("fifo", path) && !mkfifo(at("fifo-link/fifo"), 0666));
}

static void make_broken(int number) {
    const char *folder = broken[number].name;
    char path[PATH_BYTES];
    make_folder(folder);
    write_tensors(folder, 1);
    if (broken[number].config)
        write_text(folder, CONFIG, broken[number].config);
    snprintf(path, sizeof path, "%s/%s", at(folder), broken[number].file);
    damage_file(number, path);
}

START_TEST(broken_models_leave_others_alone) {
    make_tiny("good", labelled, 4);
    write_text("good", "labels.txt", "a\nb\nc\n");
    char beside[PATH_BYTES];
    snprintf(beside, sizeof beside, "%s-beside", root);
    ck_assert_int_eq(mkdir(beside, 0777), 0);
    snprintf(beside, sizeof beside, "cp -r '%s' '%s-beside/good'", at("good"), root);
    ck_assert_int_eq(system(beside), 0);
    for (int i = 0; i < BROKEN; i++)
        make_broken(i);
    ck_assert_int_eq(symlink("/", at("linked-out")), 0);
    ck_assert_int_eq(symlink("good/config.json", at("linked-file")), 0);
    make_tiny("no good", plain, 1);
    make_tiny(".hidden", plain, 1);
    write_text(".", "README", "no model");
    open_models();
    scan();
    expect_value("good", "1", 4);
    for (int i = 0; i < BROKEN; i++) {
        expect_item(broken[i].name, XN_MODEL_UNAVAILABLE, "", broken[i].says);
        expect_missing(broken[i].name, XN_ERR_LOADING, broken[i].says);
        expect_load(broken[i].name, broken[i].status ? broken[i].status : XN_ERR_MALFORMED,
                    broken[i].says);
    }
    expect_item("linked-out", XN_MODEL_UNAVAILABLE, "", "linked-out is a link that leads out");
    ck_assert_str_eq(item_of("linked-file").version, "none");
    expect_load("linked-file", XN_ERR_MALFORMED, "linked-file is no folder");
    ck_assert_str_eq(item_of("no good").version, "none"); /* not listed at all */
    ck_assert_str_eq(item_of(".hidden").version, "none");
    ck_assert_str_eq(item_of("README").version, "none");
}
END_TEST

static void make_link_at(const char *target, const char *name) {
    ck_assert_msg(!symlink(target, at(name)), "%s", name);
}

/* As Kubernetes shows a ConfigMap: names are links through ..data, which is replaced as a whole. */
static void make_config_map(const char *folder, const char *state, float value) {
    char path[64], data[64];
    snprintf(path, sizeof path, "%.20s/%.20s", folder, state);
    make_tiny(path, plain, value);
    snprintf(path, sizeof path, "%.20s/..new", folder);
    make_link_at(state, path);
    snprintf(data, sizeof data, "%.20s/..data", folder);
    ck_assert_int_eq(rename(at(path), at(data)), 0);
}

START_TEST(links_that_stay_inside_are_followed) {
    make_folder("map");
    make_config_map("map", "..2026_01", 1);
    make_link_at("..data/config.json", "map/config.json");
    make_link_at("..data/model.safetensors", "map/model.safetensors");
    make_link_at("map", "linked");
    make_folder("v");
    make_link_at("../.store/a", "v/3");
    make_folder(".store");
    make_tiny(".store/a", plain, 3);
    make_tiny("shares", plain, 4);
    ck_assert_int_eq(unlink(at("shares/model.safetensors")), 0);
    make_link_at(at(".store/a/model.safetensors"), "shares/model.safetensors");
    snprintf(config.models, sizeof config.models, "own=%s", at("map"));
    open_models();
    scan();
    expect_value("map", "1", 1);
    expect_value("own", "1", 1);
    expect_value("linked", "1", 1);
    expect_value("v", "3", 3);
    expect_value("shares", "1", 3);
    make_config_map("map", "..2026_02", 2);
    scan();
    expect_value("map", "1", 2);
    expect_value("own", "1", 2);
    ck_assert_int_eq(unlink(at("map/config.json")), 0); /* out of the folder, in the repository */
    make_link_at("../shares/config.json", "map/config.json");
    expect_load("map", XN_OK, "");
    expect_load("own", XN_ERR_MALFORMED, "config.json is a link that leads out of the model's");
}
END_TEST

START_TEST(names_do_not_lead_out) {
    static const char *const names[] = {"",          ".",   "..",   "../x",   "/etc",  "a/b",
                                        "good/../x", "a b", "\x80", "good\n", "%2e%2e"};
    make_tiny("good", plain, 4);
    open_models();
    scan();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        xn_error error = {0};
        ck_assert_int_eq(xn_models_load(models, names[i], NULL, 0, NULL, 0, &error),
                         XN_ERR_NOT_FOUND);
        ck_assert_int_eq(get_status(names[i], NULL, &error), XN_ERR_NOT_FOUND);
        ck_assert_int_eq(xn_models_unload(models, names[i], &error), XN_ERR_NOT_FOUND);
    }
    ck_assert_uint_eq(models->entries.count, 1);
}
END_TEST

/* ---- what changes ---- */

START_TEST(scan_follows_the_folders) {
    make_tiny("a", plain, 1);
    make_tiny("b", plain, 2);
    make_tiny("c", plain, 3);
    open_models();
    scan();
    const xn_model *a = get("a"), *b = get("b");
    make_tiny("d", plain, 4);
    fill("b", plain, 20);
    ck_assert_int_eq(rename(at("c"), at(".c")), 0);
    scan();
    const xn_model *now = get("a");
    ck_assert_ptr_eq(now, a); /* not loaded again */
    xn_model_release(now);
    expect_value("b", "1", 20);
    ck_assert_float_eq(value_of(b), 2); /* who holds the old one has it */
    expect_value("d", "1", 4);
    expect_item("c", XN_MODEL_UNAVAILABLE, "1", "its folder is gone");
    expect_missing("c", XN_ERR_LOADING, "its folder is gone");
    break_config("b");
    scan();
    expect_value("b", "1", 20);
    expect_item("b", XN_MODEL_READY, "1", "");
    fill("b", plain, 21);
    ck_assert_int_eq(rename(at(".c"), at("c")), 0);
    scan();
    expect_value("b", "1", 21);
    expect_value("c", "1", 3);
    write_text("a", "config.json", labelled); /* a file that is new counts as a change */
    write_text("a", "labels.txt", "x\n");
    scan();
    now = get("a");
    ck_assert_ptr_ne(now, a);
    ck_assert_str_eq(now->outputs[0].labels[0], "x");
    xn_model_release(now);
    xn_model_release(a);
    xn_model_release(b);
}
END_TEST

START_TEST(repository_that_goes_away_takes_nothing) {
    make_folder("r");
    snprintf(config.model_repository, sizeof config.model_repository, "%s", at("r"));
    make_tiny("r/a", plain, 1);
    make_tiny("x", plain, 2);
    snprintf(config.models, sizeof config.models, "x=%s", at("x"));
    open_models();
    scan();
    ck_assert_int_eq(rename(at("r"), at("s")), 0);
    fill("x", plain, 3);
    xn_error error = {0};
    ck_assert_int_eq(xn_models_scan(models, &error), XN_ERR_IO);
    ck_assert_str_eq(error.field, "model-repository");
    expect_value("a", "1", 1);
    expect_value("x", "1", 3); /* the others are still followed */
    xn_models *none = NULL;
    ck_assert_int_eq(xn_models_create(&config, NULL, &none, &error), XN_ERR_IO);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(rename(at("s"), at("r")), 0);
    scan();
    expect_value("a", "1", 1);
}
END_TEST

/* Its names can be listed, and that is all. */
START_TEST(repository_that_may_not_be_entered_takes_nothing) {
    const uid_t user = geteuid(), nobody = 65534;
    make_folder("r");
    snprintf(config.model_repository, sizeof config.model_repository, "%s", at("r"));
    make_tiny("r/a", plain, 1);
    open_models();
    scan();
    ck_assert_int_eq(chmod(root, 0755), 0);
    ck_assert_int_eq(chmod(at("r"), 0444), 0);
    ck_assert_int_eq(seteuid(user ? user : nobody), 0); /* root may all */
    scan();
    ck_assert_int_eq(seteuid(user), 0);
    expect_value("a", "1", 1);
    ck_assert_int_eq(chmod(at("r"), 0755), 0);
    fill("r/a", plain, 2);
    scan();
    expect_value("a", "1", 2);
}
END_TEST

START_TEST(folders_by_setting) {
    make_folder("r");
    snprintf(config.model_repository, sizeof config.model_repository, "%s", at("r"));
    make_tiny("r/both", plain, 1);
    make_tiny("other", plain, 2);
    make_tiny("named-inside", TINY("\"name\": \"inner\", ", ""), 3);
    make_tiny("plain", plain, 4);
    make_tiny("twin", TINY("\"name\": \"inner\", ", ""), 5);
    make_tiny("no good", plain, 6);
    ck_assert_int_eq(symlink("plain", at("link")), 0); /* a volume may be one */
    static const char *const folders[] = {
        "both=", "other", "",        "named-inside", "",     "plain//", "",
        "twin",  "",      "no good", "linked=",      "link", "gone=",   "gone"};
    size_t length = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i += 2)
        length += (size_t)snprintf(config.models + length, sizeof config.models - length,
                                   "%s%s%s/%s", i ? "," : "", folders[i], root, folders[i + 1]);
    open_models();
    scan();
    expect_value("both", "1", 2); /* before the repository's */
    expect_value("inner", "1", 3);
    expect_value("plain", "1", 4);
    expect_value("linked", "1", 4);
    expect_item("gone", XN_MODEL_UNAVAILABLE, "", "there is no folder");
    expect_missing("twin", XN_ERR_NOT_FOUND, "twin");
    ck_assert_uint_eq(models->entries.count, 5);
    fill("named-inside", TINY("\"name\": \"renamed\", ", ""), 3);
    scan();
    expect_value("renamed", "1", 3);
    expect_value("inner", "1", 5); /* the twin has the name now */
    xn_error error = {0};
    ck_assert_int_eq(xn_models_check(&config, &error), XN_ERR_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "no good"));
}
END_TEST

/* ---- by request ---- */

START_TEST(load_and_unload) {
    make_tiny("a", plain, 1);
    open_models();
    expect_load("a", XN_OK, "");
    expect_value("a", "1", 1);
    expect_load("b", XN_ERR_NOT_FOUND, "b");
    ck_assert_uint_eq(models->entries.count, 1); /* forgotten again */
    make_tiny("b", plain, 2);
    expect_load("b", XN_OK, "");
    expect_value("b", "1", 2);
    const xn_model *held = get("a");
    xn_error error = {0};
    ck_assert_int_eq(xn_models_unload(models, "a", &error), XN_OK);
    ck_assert_int_eq(xn_models_unload(models, "a", &error), XN_OK); /* as it is */
    ck_assert_int_eq(xn_models_unload(models, "none", &error), XN_ERR_LOADING);
    expect_missing("a", XN_ERR_LOADING, "unloaded by a request");
    expect_item("a", XN_MODEL_UNAVAILABLE, "1", "unloaded by a request");
    ck_assert_float_eq(value_of(held), 1);
    xn_model_release(held);
    scan();
    expect_missing("a", XN_ERR_LOADING, "unloaded by a request"); /* it has not changed */
    ck_assert_int_eq(xn_models_unload(models, "none", &error), XN_ERR_NOT_FOUND);
    expect_load("a", XN_OK, "");
    expect_value("a", "1", 1);
    ck_assert_int_eq(xn_models_unload(models, "a", &error), XN_OK);
    fill("a", plain, 7);
    scan();
    expect_value("a", "1", 7);
    break_tensors("a");
    expect_load("a", XN_ERR_MALFORMED, "");
    expect_value("a", "1", 7);
}
END_TEST

/* What the request gives stands in the place of files. */
START_TEST(load_with_files) {
    xn_error error = {0};
    nw_files six;
    tiny_tensors(6, &six);
    char *moved = xn_mem_alloc(six.tensors_length + 1); /* not aligned */
    memcpy(moved + 1, six.tensors, six.tensors_length);
    make_tiny("a", plain, 1);
    make_folder("v");
    make_tiny("v/3", plain, 3);
    open_models();
    scan();
    const xn_model_file tensors = {"model.safetensors", moved + 1, six.tensors_length};
    const xn_model_file numbered = {"3/model.safetensors", moved + 1, six.tensors_length};
    const xn_model_file with_config[2] = {{"5/config.json", plain, strlen(plain)},
                                          {"5/model.safetensors", moved + 1, six.tensors_length}};
    const xn_model_file with_labels[2] = {tensors, {"labels.txt", "l0\nl1\n", 6}};
    ck_assert_int_eq(xn_models_load(models, "a", NULL, 0, &tensors, 1, &error), XN_OK);
    expect_value("a", "1", 6);
    scan(); /* the folder is as it was */
    expect_value("a", "1", 6);
    ck_assert_int_eq(xn_models_load(models, "v", NULL, 0, &numbered, 1, &error), XN_OK);
    expect_value("v", "3", 6);
    ck_assert_int_eq(
        xn_models_load(models, "a", labelled, strlen(labelled), with_labels, 2, &error), XN_OK);
    const xn_model *model = get("a");
    ck_assert_int_eq(model->outputs[0].label_count, 2);
    ck_assert_str_eq(model->outputs[0].labels[1], "l1");
    xn_model_release(model);
    ck_assert_int_eq(xn_models_load(models, "new", NULL, 0, with_config, 2, &error), XN_OK);
    expect_value("new", "5", 6);
    scan(); /* nobody's folder: it stays */
    expect_value("new", "5", 6);
    ck_assert_int_eq(xn_models_load(models, "new2", plain, strlen(plain), &tensors, 1, &error),
                     XN_OK);
    expect_value("new2", "1", 6);

    static const struct {
        const char *name, *config;
        xn_model_file file;
        int count;
        xn_status status;
        const char *says;
    } bad[] = {
        {"a", "{}", {0}, 0, XN_ERR_MALFORMED, "config.json: "},
        {"a", "", {0}, 0, XN_ERR_MALFORMED, "config.json: "},
        {"a", NULL, {"../model.safetensors", "x", 1}, 1, XN_ERR_MALFORMED, "no use for a file"},
        {"a", NULL, {"/etc/passwd", "x", 1}, 1, XN_ERR_MALFORMED, "no use for a file"},
        {"a", NULL, {"", "x", 1}, 1, XN_ERR_MALFORMED, "no use for a file"},
        {"a", NULL, {"labels.txt", "x", 1}, 1, XN_ERR_MALFORMED, "no use for a file"},
        {"a", NULL, {"2/model.safetensors", "x", 1}, 1, XN_ERR_MALFORMED, "no use for a file"},
        {"a", NULL, {"model.safetensors", "", 0}, 1, XN_ERR_MALFORMED, ""},
        {"a", plain, {"config.json", "{}", 2}, 1, XN_ERR_MALFORMED, "no use for a file"},
        {"x",
         NULL,
         {"config.json", plain, sizeof plain - 1},
         1,
         XN_ERR_MALFORMED,
         "there is no model.safetensors"},
        {"x", NULL, {"model.safetensors", "x", 1}, 1, XN_ERR_NOT_FOUND, "x"},
        {"x", plain, {0}, 0, XN_ERR_NOT_FOUND, "x"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t length = bad[i].config ? strlen(bad[i].config) : 0;
        xn_status status = xn_models_load(models, bad[i].name, bad[i].config, length, &bad[i].file,
                                          bad[i].count, &error);
        ck_assert_msg(status == bad[i].status && strstr(error.message, bad[i].says),
                      "case %zu: %s: %s", i, xn_status_name(status), error.message);
    }
    expect_value("a", "1", 6);
    xn_mem_free(moved);
    nw_files_free(&six);
}
END_TEST

/* ---- limits ---- */

/* Equal models take the same memory but for what the heap rounds up. */
static bool is_about(int64_t bytes, int64_t wanted) {
    const int64_t slack = wanted / 10;
    return bytes >= wanted - slack && bytes <= wanted + slack;
}

START_TEST(limits_of_models) {
    make_tiny("a", plain, 1);
    make_tiny("b", plain, 2);
    make_tiny("c", plain, 3);
    xn_error error = {0};
    open_models();
    scan();
    const int64_t one = models->bytes / 3;
    xn_models_free(models);
    config.max_models_bytes = 2 * one + one / 2;
    ck_assert_int_eq(xn_models_create(&config, xn_engine_store(engine), &models, &error), XN_OK);
    scan();
    ck_assert(is_about(models->bytes, 2 * one));
    expect_item("c", XN_MODEL_UNAVAILABLE, "", "--max-models-bytes");
    ck_assert_int_eq(xn_models_unload(models, "a", &error), XN_OK);
    scan(); /* what failed is tried again, though its folder is the same */
    expect_item("c", XN_MODEL_READY, "1", "");
    ck_assert_int_eq(xn_models_unload(models, "c", &error), XN_OK);
    expect_load("a", XN_OK, "");
    expect_load("c", XN_ERR_LIMIT, "--max-models-bytes");
    expect_load("a", XN_OK, ""); /* it takes its own place */
    ck_assert(is_about(models->bytes, 2 * one));
    ck_assert_int_eq(xn_models_unload(models, "b", &error), XN_OK);
    expect_load("c", XN_OK, "");
    xn_models_free(models);

    config.max_models_bytes = 100 * one;
    config.max_models = 2;
    ck_assert_int_eq(xn_models_create(&config, xn_engine_store(engine), &models, &error), XN_OK);
    scan();
    ck_assert_uint_eq(models->entries.count, 2);
    ck_assert_int_eq(xn_models_check(&config, &error),
                     XN_OK); /* of a repository some are left out */
    xn_model_item left = item_of("c");
    const char *out = !strcmp(left.version, "none") ? "c" : "a";
    if (!strcmp(item_of("b").version, "none"))
        out = "b";
    ck_assert_int_eq(xn_models_load(models, out, NULL, 0, NULL, 0, &error), XN_ERR_LIMIT);
    ck_assert_str_eq(error.limit, "max-models");
    /* Folders that go make room for others in the same scan. */
    for (const char *name = "a"; *name; name = *name == 'a' ? "b" : *name == 'b' ? "c" : "")
        if (strcmp(name, out) != 0) {
            char hidden[8];
            snprintf(hidden, sizeof hidden, ".%s", name);
            ck_assert_int_eq(rename(at(name), at(hidden)), 0);
        }
    scan();
    ck_assert_int_eq(get_status(out, NULL, &error), XN_OK);
}
END_TEST

START_TEST(labels_count) {
    enum { LABEL = 100 << 10 };
    char *text = xn_mem_zalloc(LABEL + 8, 1);
    make_tiny("m", plain, 1);
    open_models();
    scan();
    const int64_t without = models->bytes;
    memset(text, 'x', LABEL);
    strcpy(text + LABEL, "\na\nb\n");
    write_text("m", "labels.txt", text);
    write_text("m", "config.json", labelled);
    xn_mem_free(text);
    expect_load("m", XN_OK, "");
    ck_assert_int_ge(models->bytes, without + LABEL);
}
END_TEST

START_TEST(limits_of_an_image) {
    make_tiny("a", plain, 1);
    config.max_operations = 4 * CLASSES - 1;
    open_models();
    scan();
    expect_load("a", XN_ERR_LIMIT, "max-operations");
    xn_models_free(models);
    config.max_operations = 4 * CLASSES;
    config.max_output_bytes = 4 * CLASSES - 1;
    ck_assert_int_eq(xn_models_create(&config, xn_engine_store(engine), &models, NULL), XN_OK);
    expect_load("a", XN_ERR_LIMIT, "max-output-bytes");
}
END_TEST

/* ---- folders that change while they are read ---- */

static struct meddling {
    size_t bytes; /* the allocation at which it happens: that of a file */
    int times;
    void (*act)(void);
} meddling;

static bool meddle(void *context, size_t bytes) {
    (void)context;
    static _Thread_local bool inside;
    if (bytes != meddling.bytes || !meddling.times || inside)
        return true;
    inside = true;
    meddling.times--;
    meddling.act();
    inside = false;
    return true;
}

static void swap_folders(void) {
    ck_assert_int_eq(rename(at("m"), at("old")), 0);
    ck_assert_int_eq(rename(at("new"), at("m")), 0);
    ck_assert_int_eq(rename(at("old"), at("new")), 0);
}

static void rewrite_config(void) {
    write_text("m", "config.json", plain);
}

static void vanish(void) {
    ck_assert_int_eq(rename(at("m"), at("gone")), 0);
}

static void expect_meddled(size_t bytes, int times, void (*act)(void), xn_status status,
                           const char *says) {
    meddling = (struct meddling){bytes, times, act};
    xn_mem_set_hook(meddle, NULL);
    xn_error error = {0};
    xn_status got = xn_models_load(models, "m", NULL, 0, NULL, 0, &error);
    xn_mem_set_hook(NULL, NULL);
    ck_assert_msg(got == status, "%s: %s", xn_status_name(got), error.message);
    ck_assert_msg(strstr(error.message, says) != NULL, "no \"%s\" in: %s", says, error.message);
    ck_assert_int_eq(meddling.times, 0);
}

/* Tiny tensors behind a header with blanks at its end: the allocation for this file is like no
 * other of a load. Returns the file's bytes. */
static size_t write_padded_tensors(const char *folder, float value) {
    enum { BLANKS = 4096, LENGTH = sizeof(uint64_t) };
    nw_files files;
    uint64_t header;
    tiny_tensors(value, &files);
    const size_t bytes = files.tensors_length + BLANKS;
    char *padded = xn_mem_alloc(bytes);
    memcpy(&header, files.tensors, LENGTH);
    memset(padded, ' ', bytes);
    memcpy(padded, files.tensors, LENGTH + header);
    memcpy(padded + LENGTH + header + BLANKS, (char *)files.tensors + LENGTH + header,
           files.tensors_length - LENGTH - header);
    header += BLANKS;
    memcpy(padded, &header, LENGTH);
    write_bytes(folder, "model.safetensors", padded, bytes);
    xn_mem_free(padded);
    nw_files_free(&files);
    return bytes;
}

START_TEST(folder_changes_while_it_is_read) {
    make_tiny("m", plain, 1);
    make_tiny("new", plain, 2);
    write_padded_tensors("new", 2);
    const size_t tensors = write_padded_tensors("m", 1);
    open_models();
    expect_load("m", XN_OK, "");
    expect_meddled(tensors, 1, swap_folders, XN_OK, ""); /* read again, as a whole */
    expect_value("m", "1", 2);
    expect_meddled(tensors, 2, swap_folders, XN_ERR_LOADING, "its folder changed while");
    expect_value("m", "1", 2);
    expect_meddled(strlen(plain), 1, rewrite_config, XN_OK, "");
    expect_meddled(strlen(plain), 2, rewrite_config, XN_ERR_LOADING,
                   "config.json changed while it was read");
    expect_value("m", "1", 2);
    expect_meddled(tensors, 1, vanish, XN_ERR_NOT_FOUND, "no folder");
    expect_value("m", "1", 2); /* what serves serves on */
}
END_TEST

static void highest_vanishes(void) {
    ck_assert_int_eq(rename(at("m/3"), at("m/.3")), 0);
}

/* A version that goes while it is read: those that are there then are served. */
START_TEST(a_version_vanishes_while_it_is_read) {
    make_folder("m");
    make_version(1);
    make_version(2);
    make_version(3);
    const size_t tensors = write_padded_tensors("m/3", 3);
    open_with_policy(_i ? "latest:2" : "latest:1");
    expect_meddled(tensors, 1, highest_vanishes, XN_OK, "");
    expect_versions(_i ? " 1 2" : " 2");
}
END_TEST

static void look_at_both(void) {
    expect_item("a", XN_MODEL_LOADING, "", "");
    expect_item("b", XN_MODEL_LOADING, "", "");
}

START_TEST(a_scan_shows_what_it_has_yet_to_load) {
    make_tiny("a", plain, 1);
    make_tiny("b", plain, 2);
    open_models();
    meddling = (struct meddling){strlen(plain), 1, look_at_both};
    xn_mem_set_hook(meddle, NULL);
    scan();
    xn_mem_set_hook(NULL, NULL);
    ck_assert_int_eq(meddling.times, 0);
    expect_item("b", XN_MODEL_READY, "1", "");
}
END_TEST

/* ---- loads side by side ---- */

enum { LARGE_BYTES = 100003 };
static sem_t read_begins, read_on;
static atomic_int being_read;

static bool hold_large(void *context, size_t bytes) {
    (void)context;
    if (bytes == LARGE_BYTES) {
        atomic_fetch_add(&being_read, 1);
        sem_post(&read_begins);
        fake_wait(&read_on);
    }
    return true;
}

static void *load_large(void *name) {
    ck_assert_int_eq(xn_models_load(models, name, NULL, 0, NULL, 0, NULL), XN_ERR_MALFORMED);
    return NULL;
}

/* Files that are read at once fit into --max-models-bytes together; what is smaller passes. */
START_TEST(large_files_are_read_one_after_the_other) {
    static const char zeros[LARGE_BYTES];
    pthread_t threads[2];
    char name[2][2] = {"a", "b"};
    config.max_models_bytes = LARGE_BYTES + 1000;
    sem_init(&read_begins, 0, 0);
    sem_init(&read_on, 0, 0);
    make_tiny("small", plain, 1);
    for (int i = 0; i < 2; i++) {
        make_tiny(name[i], plain, 1);
        write_bytes(name[i], "model.safetensors", zeros, sizeof zeros);
    }
    open_models();
    xn_mem_set_hook(hold_large, NULL);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, load_large, name[i]), 0);
    fake_wait(&read_begins);
    while (item_of("a").state != XN_MODEL_LOADING || item_of("b").state != XN_MODEL_LOADING)
        sched_yield();
    for (int i = 0; i < 20; i++) {
        expect_load("small", XN_OK, "");
        ck_assert_int_eq(atomic_load(&being_read), 1);
    }
    sem_post(&read_on);
    fake_wait(&read_begins);
    sem_post(&read_on);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    xn_mem_set_hook(NULL, NULL);
    ck_assert_int_eq(models->reading, 0);
}
END_TEST

/* ---- memory, devices, ending ---- */

static atomic_int countdown;

START_TEST(allocations_fail) {
    make_tiny("a", labelled, 1);
    write_text("a", "labels.txt", "x\ny\n");
    make_tiny("b", plain, 2);
    open_models();
    expect_load("b", XN_OK, "");
    int failed = 0;
    for (int i = 0;; i++) {
        xn_error error = {0};
        atomic_store(&countdown, i);
        xn_mem_set_hook(xn_test_count_down, &countdown);
        xn_status status = xn_models_load(models, "a", NULL, 0, NULL, 0, &error);
        xn_mem_set_hook(NULL, NULL);
        if (status == XN_OK && atomic_load(&countdown) >= 0)
            break;
        expect_value("b", "1", 2);
        if (status == XN_OK) /* of what was optional */
            continue;
        failed++;
        ck_assert_msg(status == XN_ERR_NO_MEMORY, "%d: %s", i, error.message);
        ck_assert_int_eq(error.status, XN_ERR_NO_MEMORY);
    }
    ck_assert_int_gt(failed, 15);
    expect_value("a", "1", 1);
}
END_TEST

START_TEST(devices_refuse) {
    fake_reset();
    make_tiny("a", plain, 1);
    make_tiny(
        "pool",
        "{\"format\": \"xnord-network/1\", \"input\": {\"name\": \"i\", \"datatype\": \"FP32\", "
        "\"shape\": [1, 2, 2]}, \"output\": {\"name\": \"o\"}, \"layers\": [{\"op\": "
        "\"conv\", \"name\": \"c\", \"mode\": \"float\"}, {\"op\": \"softmax\", \"name\": "
        "\"s\"}]}",
        1);
    engine = fake_engine_pair(&config, 1);
    ck_assert_int_eq(xn_models_create(&config, xn_engine_store(engine), &models, NULL), XN_OK);
    expect_load("a", XN_OK, "");
    expect_load("pool", XN_ERR_UNSUPPORTED, "softmax");
    int live = fake[FAKE_GPU].live_prepared;
    fake[FAKE_CPU].prepare_failure = XN_ERR_DEVICE_MEMORY;
    expect_load("a", XN_ERR_DEVICE_MEMORY, "cannot prepare");
    expect_item("a", XN_MODEL_READY, "1", "");
    ck_assert_int_eq(fake[FAKE_GPU].live_prepared, live);
    int64_t bytes = models->bytes;
    fake[FAKE_CPU].prepare_failure = XN_OK;
    expect_load("a", XN_OK, "");
    ck_assert(is_about(models->bytes, bytes));
    xn_error error = {0};
    ck_assert_int_eq(xn_models_unload(models, "a", &error), XN_OK);
    ck_assert_int_eq(fake[FAKE_GPU].live_prepared, 0);
    ck_assert_int_eq(models->bytes, 0);
}
END_TEST

START_TEST(stopping) {
    make_tiny("a", plain, 1);
    open_models();
    expect_load("a", XN_OK, "");
    xn_models_stop(models);
    expect_load("a", XN_ERR_DRAINING, "shutting down");
    scan();
    expect_value("a", "1", 1);
    xn_models_stop(NULL);
}
END_TEST

/* Weights and models are read in side by side; the engine waits for both. */
START_TEST(loading_makes_unready) {
    open_models();
    xn_engine_health health;
    xn_engine_set_loading(engine, XN_LOADING_MODELS, true);
    xn_engine_set_loading(engine, XN_LOADING_WEIGHTS, true);
    xn_engine_health_get(engine, &health);
    ck_assert(!health.ready && strstr(health.reason, "--weights-dir"));
    xn_asset *asset = NULL;
    ck_assert_int_eq(xn_store_get(xn_engine_store(engine), "w", &asset, NULL), XN_ERR_LOADING);
    xn_engine_set_loading(engine, XN_LOADING_WEIGHTS, false);
    xn_engine_health_get(engine, &health);
    ck_assert(!health.ready && strstr(health.reason, "loading models"));
    ck_assert_int_eq(xn_metrics_gauge(xn_engine_metrics(engine), XN_GAUGE_READY), 0);
    ck_assert_int_eq(xn_store_get(xn_engine_store(engine), "w", &asset, NULL), XN_ERR_NOT_FOUND);
    xn_engine_set_loading(engine, XN_LOADING_MODELS, false);
    xn_engine_health_get(engine, &health);
    ck_assert(health.ready);
    ck_assert_int_eq(xn_metrics_gauge(xn_engine_metrics(engine), XN_GAUGE_READY), 1);
}
END_TEST

START_TEST(check_without_devices) {
    xn_error error = {0};
    make_tiny("a", plain, 1);
    ck_assert_int_eq(xn_models_check(&config, &error), XN_OK);
    make_tiny("b", plain, 2);
    break_config("b");
    ck_assert_int_eq(xn_models_check(&config, &error), XN_OK); /* as the start leaves it out */
    snprintf(config.models, sizeof config.models, "a=%s,c=%s", at("a"), at("b"));
    ck_assert_int_eq(xn_models_check(&config, &error), XN_ERR_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "model \"c\": config.json: "));
    config.max_models = 1;
    fill("b", plain, 2);
    ck_assert_int_eq(xn_models_check(&config, &error), XN_ERR_LIMIT);
    ck_assert_str_eq(error.limit, "max-models");
    config.max_models = 2;
    config.max_models_bytes = 5000; /* for one, and for each of the files */
    ck_assert_int_eq(xn_models_check(&config, &error), XN_ERR_LIMIT);
    ck_assert_msg(strstr(error.message, "model \"c\": it takes") != NULL, "%s", error.message);
    config.models[0] = '\0';
    snprintf(config.model_repository, sizeof config.model_repository, "/nonexistent/x");
    ck_assert_int_eq(xn_models_check(&config, &error), XN_ERR_IO);
    config.model_repository[0] = '\0';
    ck_assert_int_eq(xn_models_check(&config, &error), XN_OK);
    snprintf(config.models, sizeof config.models, "m=/nonexistent/x");
    ck_assert_int_eq(xn_models_check(&config, &error), XN_ERR_NOT_FOUND);
}
END_TEST

/* ---- statistics ---- */

/* They outlive a version that is loaded anew, whoever counts, but not another version. What counts
 * for what: model_stats_test.c. */
START_TEST(statistics) {
    make_tiny("a", plain, 1);
    make_folder("v");
    make_tiny("v/1", plain, 1);
    open_models();
    scan();
    xn_model_stats s;
    const xn_model *model = get("a");
    xn_model_counters_read(model->counters, &s);
    ck_assert(!s.last_inference_ms && !s.inference_count && !s.execution_count && !s.success.count);
    const xn_model_sample alone = success_of(5, 100, 10, 20, 30, 40, 1);
    const xn_model_sample failed = {.total_ns = 9};
    xn_model_counters_add(model->counters, &alone);
    xn_model_counters_add(model->counters, &failed);
    xn_model_counters_read(model->counters, &s);
    ck_assert_int_gt(s.last_inference_ms, INT64_C(1500000000000));
    ck_assert(s.inference_count == 5 && s.success.count == 1 && s.fail.count == 1);
    fill("a", plain, 2);
    scan();
    const xn_model *anew = get("a");
    ck_assert_ptr_ne(anew, model);
    xn_model_counters_add(model->counters, &alone);
    xn_model_counters_read(anew->counters, &s);
    ck_assert_uint_eq(s.success.count, 2);
    xn_model_release(model);
    xn_model_release(anew);
    model = get("v");
    xn_model_counters_add(model->counters, &alone);
    xn_model_release(model);
    make_tiny("v/2", plain, 2);
    scan();
    model = get("v");
    xn_model_counters_read(model->counters, &s);
    ck_assert_uint_eq(s.success.count, 0);
    xn_model_release(model);
}
END_TEST

static void expect_line(const char *page, const char *line) {
    const char *found = strstr(page, line);
    ck_assert_msg(found && (found == page || found[-1] == '\n'), "no %s in:\n%s", line, page);
}

START_TEST(page_of_metrics) {
    make_tiny("a.b-c", plain, 1);
    make_tiny("bad", plain, 1);
    break_config("bad");
    open_models();
    xn_metrics *metrics = xn_engine_metrics(engine);
    xn_metrics_set_more(metrics, xn_models_metrics, models);
    scan();
    const xn_model *model = get("a.b-c");
    const xn_model_sample sample = success_of(5, 100, 1500000000, 200000000, 30, 40, 1);
    const xn_model_sample failed = {.total_ns = 9};
    xn_model_counters_add(model->counters, &sample);
    xn_model_counters_add(model->counters, &failed);
    xn_model_release(model);
    size_t length = 0;
    char *page = xn_metrics_render(metrics, &length);
    ck_assert_ptr_nonnull(page);
    expect_line(page, "xnord_models 1\n");
    expect_line(page, "xnord_model_requests_total{model=\"a.b-c\",version=\"1\"} 2\n");
    expect_line(page, "xnord_model_failures_total{model=\"a.b-c\",version=\"1\"} 1\n");
    expect_line(page, "xnord_model_images_total{model=\"a.b-c\",version=\"1\"} 5\n");
    expect_line(page, "xnord_model_executions_total{model=\"a.b-c\",version=\"1\"} 1\n");
    expect_line(page, "xnord_model_queue_seconds_total{model=\"a.b-c\",version=\"1\"} 1.5\n");
    expect_line(page,
                "xnord_model_compute_seconds_total{model=\"a.b-c\",version=\"1\"} 0.20000007\n");
    expect_line(page, "xnord_model_ready{model=\"a.b-c\",version=\"1\"} 1\n");
    expect_line(page, "# TYPE xnord_model_requests_total counter\n");
    ck_assert_ptr_null(strstr(page, "bad"));
    xn_mem_free(page);
    ck_assert_int_eq(xn_models_unload(models, "a.b-c", NULL), XN_OK);
    page = xn_metrics_render(metrics, &length);
    expect_line(page, "xnord_models 0\n");
    expect_line(page, "xnord_models_bytes 0\n");
    expect_line(page, "xnord_model_requests_total{model=\"a.b-c\",version=\"1\"} 2\n");
    expect_line(page, "xnord_model_ready{model=\"a.b-c\",version=\"1\"} 0\n");
    xn_mem_free(page);
}
END_TEST

XN_SUITE(models) {
    Suite *s = suite_create("models");
    TCase *t = tcase_create("models");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, tiny_model_is_described);
    tcase_add_test(t, serves_once_it_is_warm);
    tcase_add_loop_test(t, random_networks, 0, 4);
    tcase_add_test(t, a_config_beside_versions_counts);
    tcase_add_loop_test(t, policies_serve, 0, sizeof policies / sizeof *policies);
    tcase_add_loop_test(t, policies_without_a_version, 0, 2);
    tcase_add_test(t, a_broken_version_leaves_the_others);
    tcase_add_loop_test(t, a_version_vanishes_while_it_is_read, 0, 2);
    tcase_add_test(t, broken_models_leave_others_alone);
    tcase_add_test(t, links_that_stay_inside_are_followed);
    tcase_add_test(t, names_do_not_lead_out);
    tcase_add_test(t, scan_follows_the_folders);
    tcase_add_test(t, repository_that_goes_away_takes_nothing);
    tcase_add_test(t, repository_that_may_not_be_entered_takes_nothing);
    tcase_add_test(t, folders_by_setting);
    tcase_add_test(t, load_and_unload);
    tcase_add_test(t, load_with_files);
    tcase_add_test(t, limits_of_models);
    tcase_add_test(t, labels_count);
    tcase_add_test(t, limits_of_an_image);
    tcase_add_test(t, folder_changes_while_it_is_read);
    tcase_add_test(t, a_scan_shows_what_it_has_yet_to_load);
    tcase_add_test(t, large_files_are_read_one_after_the_other);
    tcase_add_test(t, allocations_fail);
    tcase_add_test(t, devices_refuse);
    tcase_add_test(t, stopping);
    tcase_add_test(t, loading_makes_unready);
    tcase_add_test(t, check_without_devices);
    tcase_add_test(t, statistics);
    tcase_add_test(t, page_of_metrics);
    suite_add_tcase(s, t);
    return s;
}
