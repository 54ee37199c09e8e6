// A trainer in plain C, with its own loops and memory and no library. It learns which character
// follows eight others in a few lines of text, with a hand-written backward pass and AdamW.
//
//   c_plain_trainer [steps = 50]
//
// c_trainer.c is the same program under Tessera.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHARS = 128, CONTEXT = 8, WIDTH = 12, HIDDEN = 61, BATCH = 16, LAYERS = 3 };

static const char text[] =
    "A mosaic is made of small tiles, and no tile shows the picture. Each is cut to its place, "
    "laid beside its neighbours, and forgotten; step back, and a face looks at you.";

// A table of characters, followed by three layers.
static const int ins[LAYERS] = {CONTEXT * WIDTH, HIDDEN, HIDDEN};
static const int outs[LAYERS] = {HIDDEN, HIDDEN, CHARS};
static const float lr = 0.01F, beta1 = 0.9F, beta2 = 0.95F, eps = 1e-8F;

typedef struct {
  int64_t elems;
  float* data;
  float* grad;
  float* m;
  float* v;
} Parameter;

typedef struct {
  Parameter table;
  Parameter weights[LAYERS];
  Parameter biases[LAYERS];
} Model;

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

static void make(Parameter* p, int id, int64_t elems) {
  p->elems = elems;
  p->data = calloc((size_t)elems, sizeof(float));
  p->grad = calloc((size_t)elems, sizeof(float));
  p->m = calloc((size_t)elems, sizeof(float));
  p->v = calloc((size_t)elems, sizeof(float));
  if (!p->data || !p->grad || !p->m || !p->v) abort();
  for (int64_t i = 0; i < elems; ++i) p->data[i] = initial(id, i);
}

static void drop(Parameter* p) {
  free(p->data);
  free(p->grad);
  free(p->m);
  free(p->v);
}

static double power(double b, int t) {
  double result = 1.0;
  for (; t > 0; t >>= 1) {
    if (t & 1) result *= b;
    b *= b;
  }
  return result;
}

// One AdamW step without decay; it zeroes the gradient.
static void update(Parameter* p, int step) {
  const float lr_t = (float)((double)lr / (1.0 - power(beta1, step)));
  const float v_scale = (float)(1.0 / sqrt(1.0 - power(beta2, step)));
  for (int64_t i = 0; i < p->elems; ++i) {
    const float g = p->grad[i];
    p->m[i] = beta1 * p->m[i] + (1.0F - beta1) * g;
    p->v[i] = beta2 * p->v[i] + (1.0F - beta2) * g * g;
    p->data[i] -= lr_t * p->m[i] / (sqrtf(p->v[i]) * v_scale + eps);
    p->grad[i] = 0.0F;
  }
}

static void train(int steps) {
  const int rows = BATCH;
  Activations* a = malloc(sizeof *a);
  if (!a) abort();
  Model model;
  make(&model.table, 0, CHARS * WIDTH);
  for (int l = 0; l < LAYERS; ++l) {
    make(&model.weights[l], 1 + 2 * l, ins[l] * outs[l]);
    make(&model.biases[l], 2 + 2 * l, outs[l]);
  }

  for (int step = 1; step <= steps; ++step) {
    read_batch(a, step, 0, rows);
    table_forward(a, model.table.data, rows);
    for (int l = 0; l < LAYERS; ++l)
      layer_forward(a, l, model.weights[l].data, model.biases[l].data, rows);
    const double loss = cross_entropy(a, rows);
    for (int l = LAYERS - 1; l >= 0; --l)
      layer_backward(a, l, model.weights[l].data, model.weights[l].grad, model.biases[l].grad,
                     rows);
    table_backward(a, model.table.grad, rows);

    update(&model.table, step);
    for (int l = 0; l < LAYERS; ++l) {
      update(&model.weights[l], step);
      update(&model.biases[l], step);
    }
    printf("step %d loss %.17g\n", step, loss);
  }

  free(a);
  drop(&model.table);
  for (int l = 0; l < LAYERS; ++l) {
    drop(&model.weights[l]);
    drop(&model.biases[l]);
  }
}

int main(int argc, char** argv) {
  train(argc > 1 ? atoi(argv[1]) : 50);
  return 0;
}
