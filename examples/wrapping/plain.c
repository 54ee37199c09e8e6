#include <stdio.h>

#include "kernels.h"

static Arrays a;
static float w[COUNT][WIDTH * WIDTH], dw[COUNT][WIDTH * WIDTH], momentum_w[COUNT][WIDTH * WIDTH];
static float b[COUNT][WIDTH], db[COUNT][WIDTH], momentum_b[COUNT][WIDTH];

static void update(int count, float* value, float* gradient, float* momentum) {
  for (int i = 0; i < count; ++i) {
    momentum[i] = 0.9F * momentum[i] + gradient[i];
    value[i] -= 0.05F * momentum[i];
    gradient[i] = 0;
  }
}

int main(void) {
  for (int l = 0; l < COUNT; ++l) {
    for (int i = 0; i < ins[l] * outs[l]; ++i) w[l][i] = initial_weight(l, i);
  }
  for (int step = 0; step < 400; ++step) {
    read_batch(&a, step * BATCH, BATCH);
    for (int l = 0; l < COUNT; ++l) forward(&a, l, BATCH, w[l], b[l]);
    const double loss = mean_squared_error(&a, BATCH);
    for (int l = COUNT; l-- > 0;) backward(&a, l, BATCH, w[l], dw[l], db[l]);
    for (int l = 0; l < COUNT; ++l) {
      update(ins[l] * outs[l], w[l], dw[l], momentum_w[l]);
      update(outs[l], b[l], db[l], momentum_b[l]);
    }
    if (step % 100 == 99) printf("step %d: loss %.4f\n", step + 1, loss);
  }
}
