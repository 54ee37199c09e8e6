// Loops of a trainer that does not depend on Tessera: y = tanh(x w + b) for layers of any size.
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { COUNT = 6, WIDTH = 64, BATCH = 64 };
static const int ins[COUNT] = {2, WIDTH, WIDTH, WIDTH, WIDTH, WIDTH};
static const int outs[COUNT] = {WIDTH, WIDTH, WIDTH, WIDTH, WIDTH, 1};

// y[l] is the input of layer l, y[l + 1] its output; dy are their gradients.
typedef struct {
  float y[COUNT + 1][BATCH * WIDTH], dy[COUNT + 1][BATCH * WIDTH], target[BATCH];
} Arrays;

static inline void forward(Arrays* a, int l, int rows, const float* w, const float* b) {
  for (int r = 0; r < rows; ++r) {
    for (int o = 0; o < outs[l]; ++o) {
      float sum = b[o];
      for (int i = 0; i < ins[l]; ++i) sum += a->y[l][r * ins[l] + i] * w[i * outs[l] + o];
      a->y[l + 1][r * outs[l] + o] = tanhf(sum);
    }
  }
}

// Adds to dw and db.
static inline void backward(Arrays* a, int l, int rows, const float* w, float* dw, float* db) {
  memset(a->dy[l], 0, sizeof a->dy[l]);
  for (int r = 0; r < rows; ++r) {
    for (int o = 0; o < outs[l]; ++o) {
      const float y = a->y[l + 1][r * outs[l] + o];
      const float dz = a->dy[l + 1][r * outs[l] + o] * (1 - y * y);
      db[o] += dz;
      for (int i = 0; i < ins[l]; ++i) {
        dw[i * outs[l] + o] += a->y[l][r * ins[l] + i] * dz;
        a->dy[l][r * ins[l] + i] += w[i * outs[l] + o] * dz;
      }
    }
  }
}

// The mean squared error over `rows`, and its gradient.
static inline double mean_squared_error(Arrays* a, int rows) {
  double loss = 0;
  for (int r = 0; r < rows; ++r) {
    const float error = a->y[COUNT][r] - a->target[r];
    a->dy[COUNT][r] = 2 * error / (float)rows;
    loss += (double)error * error / rows;
  }
  return loss;
}

// A number in [-1, 1) for each `i`, used for data and initial weights.
static inline float drawn(int64_t i) {
  return (float)((uint32_t)i * 2654435761U >> 8) / 8388608.0F - 1;
}
static inline void read_batch(Arrays* a, int first, int rows) {
  for (int r = 0; r < rows; ++r) {
    a->y[0][2 * r] = drawn(2 * (first + r));
    a->y[0][2 * r + 1] = drawn(2 * (first + r) + 1);
    a->target[r] = sinf(2 * a->y[0][2 * r]) * a->y[0][2 * r + 1];
  }
}
static inline float initial_weight(int layer, int64_t element) {
  return sqrtf(3.0F / (float)ins[layer]) * drawn(1000000LL * (layer + 1) + element);
}
