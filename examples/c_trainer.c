// The trainer of c_plain_trainer.c with Tessera: the same loops, but parameters, gradients and
// AdamW's moments are sharded over ranks. The batch does not depend on the number of ranks.
//
//   c_trainer [steps = 50] [strategy = zero3] [ranks = 2]     ranks are threads
//   mpirun -n 2 c_trainer [steps] [strategy] 0                ranks are processes
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <tessera/c.h>

enum { CHARS = 128, CONTEXT = 8, WIDTH = 12, HIDDEN = 61, BATCH = 16, LAYERS = 3 };

static const char text[] =
    "A mosaic is made of small tiles, and no tile shows the picture. Each is cut to its place, "
    "laid beside its neighbours, and forgotten; step back, and a face looks at you.";

// A table of characters, followed by three layers.
static const int ins[LAYERS] = {CONTEXT * WIDTH, HIDDEN, HIDDEN};
static const int outs[LAYERS] = {HIDDEN, HIDDEN, CHARS};

typedef struct {
  int steps;
  tessera_strategy strategy;
} Options;

// The activations of a rank: y[0] is the table's output, y[LAYERS] are the logits.
typedef struct {
  unsigned char chars[BATCH][CONTEXT];
  unsigned char targets[BATCH];
  float y[LAYERS + 1][BATCH * CHARS];
  float dy[LAYERS + 1][BATCH * CHARS];
} Activations;

// The initial value of an element, which depends only on its place.
static float initial(int parameter, int64_t element) {
  uint64_t x = (uint64_t)element * 0x9E3779B97F4A7C15U + (uint64_t)parameter * 0xD1B54A32D192ED03U;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9U;
  return ((float)(x >> 40) / 8388608.0F - 1.0F) * 0.15F;
}

// The rows [first, first + rows) of the step's batch.
static void read_batch(Activations* a, int step, int first, int rows) {
  for (int r = 0; r < rows; ++r) {
    const size_t at = (size_t)(step * BATCH + first + r) * 37 % (sizeof text - 1 - CONTEXT);
    for (int c = 0; c < CONTEXT; ++c) a->chars[r][c] = (unsigned char)text[at + (size_t)c];
    a->targets[r] = (unsigned char)text[at + CONTEXT];
  }
}

static void table_forward(Activations* a, const float* table, int rows) {
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < CONTEXT * WIDTH; ++i)
      a->y[0][r * CONTEXT * WIDTH + i] = table[a->chars[r][i / WIDTH] * WIDTH + i % WIDTH];
}

static void table_backward(const Activations* a, float* dtable, int rows) {
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < CONTEXT * WIDTH; ++i)
      dtable[a->chars[r][i / WIDTH] * WIDTH + i % WIDTH] += a->dy[0][r * CONTEXT * WIDTH + i];
}

// y = x w + b, then tanh, except for the logits.
static void layer_forward(Activations* a, int l, const float* w, const float* b, int rows) {
  for (int r = 0; r < rows; ++r)
    for (int o = 0; o < outs[l]; ++o) {
      float sum = b[o];
      for (int i = 0; i < ins[l]; ++i) sum += a->y[l][r * ins[l] + i] * w[i * outs[l] + o];
      a->y[l + 1][r * outs[l] + o] = l < LAYERS - 1 ? tanhf(sum) : sum;
    }
}

// Adds to dw and db; overwrites dy[l].
static void layer_backward(Activations* a, int l, const float* w, float* dw, float* db, int rows) {
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < ins[l]; ++i) a->dy[l][r * ins[l] + i] = 0.0F;
    for (int o = 0; o < outs[l]; ++o) {
      const float y = a->y[l + 1][r * outs[l] + o];
      const float dy = a->dy[l + 1][r * outs[l] + o];
      const float dz = l < LAYERS - 1 ? dy * (1.0F - y * y) : dy;
      db[o] += dz;
      for (int i = 0; i < ins[l]; ++i) {
        dw[i * outs[l] + o] += a->y[l][r * ins[l] + i] * dz;
        a->dy[l][r * ins[l] + i] += w[i * outs[l] + o] * dz;
      }
    }
  }
}

// Returns the mean cross entropy and writes its gradient.
static double cross_entropy(Activations* a, int rows) {
  double loss = 0.0;
  for (int r = 0; r < rows; ++r) {
    const float* logits = a->y[LAYERS] + r * CHARS;
    double sum = 0.0;
    for (int c = 0; c < CHARS; ++c) sum += exp(logits[c]);
    for (int c = 0; c < CHARS; ++c)
      a->dy[LAYERS][r * CHARS + c] = (float)((exp(logits[c]) / sum - (c == a->targets[r])) / rows);
    loss += (log(sum) - logits[a->targets[r]]) / rows;
  }
  return loss;
}

static tessera_status initialise(const tessera_parameter_info* p, int64_t first, int64_t count,
                                 float* out, void* user) {
  (void)user;
  for (int64_t i = 0; i < count; ++i) out[i] = initial((int)p->id, first + i);
  return TESSERA_OK;
}

// One rank's program.
static tessera_status train(tessera_world* world, void* user) {
  const Options* options = user;
  int32_t rank, ranks;
  TESSERA_TRY(tessera_world_place(world, &rank, &ranks));
  const int rows = BATCH / ranks;
  if (BATCH % ranks) return tessera_fail(TESSERA_CONFIG_ERROR, "ranks must divide the batch");
  void* memory;
  TESSERA_TRY(
      tessera_allocate(world, TESSERA_ACTIVATIONS, sizeof(Activations), "activations", &memory));
  Activations* a = memory;

  tessera_model_options state;
  tessera_model_options_init(&state, sizeof state);
  state.strategy = options->strategy;
  tessera_model* model;
  TESSERA_TRY(tessera_model_create(world, &state, &model));
  tessera_unit table, layers[LAYERS];
  const tessera_parameter_spec rows_of = {.name = "rows", .dims = 2, .shape = {CHARS, WIDTH}};
  TESSERA_TRY(tessera_add_unit(model, "table", &rows_of, 1, NULL, &table));
  for (int l = 0; l < LAYERS; ++l) {
    char name[16];
    snprintf(name, sizeof name, "layer.%d", l);
    const tessera_parameter_spec p[] = {{.name = "w", .dims = 2, .shape = {ins[l], outs[l]}},
                                        {.name = "b", .dims = 1, .shape = {outs[l]}}};
    TESSERA_TRY(tessera_add_unit(model, name, p, 2, NULL, &layers[l]));
  }
  TESSERA_TRY(tessera_materialize(model, initialise, NULL));
  tessera_optimizer_options adamw;
  tessera_optimizer_options_init(&adamw, sizeof adamw, TESSERA_ADAMW);
  adamw.lr = 0.01F;
  adamw.weight_decay = 0.0F;
  TESSERA_TRY(tessera_optimize_with(model, &adamw));

  tessera_scope* scope;
  const void *w, *b;
  void *dw, *db;
  for (int step = 1; step <= options->steps; ++step) {
    read_batch(a, step, rank * rows, rows);
    TESSERA_TRY(tessera_forward(model, table, &scope));
    TESSERA_TRY(tessera_parameter(scope, "rows", TESSERA_FP32, &w));
    table_forward(a, w, rows);
    TESSERA_TRY(tessera_close(scope));
    for (int l = 0; l < LAYERS; ++l) {
      TESSERA_TRY(tessera_forward(model, layers[l], &scope));
      TESSERA_TRY(tessera_parameter(scope, "w", TESSERA_FP32, &w));
      TESSERA_TRY(tessera_parameter(scope, "b", TESSERA_FP32, &b));
      layer_forward(a, l, w, b, rows);
      TESSERA_TRY(tessera_close(scope));
    }
    const double loss = cross_entropy(a, rows);
    for (int l = LAYERS - 1; l >= 0; --l) {
      TESSERA_TRY(tessera_backward(model, layers[l], &scope));
      TESSERA_TRY(tessera_parameter(scope, "w", TESSERA_FP32, &w));
      TESSERA_TRY(tessera_gradient(scope, "w", TESSERA_FP32, &dw));
      TESSERA_TRY(tessera_gradient(scope, "b", TESSERA_FP32, &db));
      layer_backward(a, l, w, dw, db, rows);
      TESSERA_TRY(tessera_close(scope));
    }
    TESSERA_TRY(tessera_backward(model, table, &scope));
    TESSERA_TRY(tessera_gradient(scope, "rows", TESSERA_FP32, &dw));
    table_backward(a, dw, rows);
    TESSERA_TRY(tessera_close(scope));

    TESSERA_TRY(tessera_step(model, &loss));
    tessera_step_report report = {.size = sizeof report};
    TESSERA_TRY(tessera_report(model, &report));
    if (rank == 0) printf("step %d loss %.17g\n", step, report.loss);
  }
  return TESSERA_OK;
}

int main(int argc, char** argv) {
  Options options = {argc > 1 ? atoi(argv[1]) : 50, TESSERA_ZERO3};
  const int ranks = argc > 3 ? atoi(argv[3]) : 2;
  tessera_status status = tessera_strategy_from(argc > 2 ? argv[2] : "zero3", &options.strategy);
  if (status == TESSERA_OK)
    status = ranks > 0 ? tessera_run_ranks(ranks, train, &options, NULL)
                       : tessera_run(train, &options, NULL);
  if (status != TESSERA_OK) fprintf(stderr, "c_trainer: %s\n", tessera_last_error());
  return status != TESSERA_OK;
}
