// Loops of a trainer that does not depend on Tessera: y = tanh(x w + b) for layers of any size.
#pragma once
#include <cmath>
#include <utility>

struct Size {
  int in, out;
};
inline constexpr int kCount = 6;
inline constexpr Size kLayers[kCount] = {{2, 64}, {64, 64}, {64, 64}, {64, 64}, {64, 64}, {64, 1}};
inline constexpr int kBatch = 64;  // samples per step

inline void forward(Size s, int rows, const float* x, const float* w, const float* b, float* y) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < s.out; ++c) {
      float sum = b[c];
      for (int k = 0; k < s.in; ++k) { sum += x[r * s.in + k] * w[k * s.out + c]; }
      y[r * s.out + c] = std::tanh(sum);
    }
  }
}

// Adds to dw and db; overwrites dx.
inline void backward(Size s, int rows, const float* x, const float* y, const float* dy,
                     const float* w, float* dw, float* db, float* dx) {
  for (int i = 0; i < rows * s.in; ++i) { dx[i] = 0; }
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < s.out; ++c) {
      const float out = y[r * s.out + c];
      const float dz = dy[r * s.out + c] * (1 - out * out);
      db[c] += dz;
      for (int k = 0; k < s.in; ++k) {
        dw[k * s.out + c] += x[r * s.in + k] * dz;
        dx[r * s.in + k] += w[k * s.out + c] * dz;
      }
    }
  }
}

// The mean squared error over `rows`, and its gradient.
inline double mean_squared_error(int rows, const float* y, const float* target, float* dy) {
  double loss = 0;
  for (int r = 0; r < rows; ++r) {
    const float error = y[r] - target[r];
    dy[r] = 2 * error / static_cast<float>(rows);
    loss += static_cast<double>(error) * error / rows;
  }
  return loss;
}

// A number in [-1, 1) for each `i`, used for data and initial weights.
inline float drawn(long i) {
  return static_cast<float>(static_cast<unsigned>(i) * 2654435761U >> 8) / 8388608.0F - 1;
}
// Samples [first, first + rows) of sin(2 a) b.
inline void read_batch(long first, int rows, float* x, float* target) {
  for (int r = 0; r < rows; ++r) {
    const float a = x[2 * r] = drawn(2 * (first + r));
    const float b = x[2 * r + 1] = drawn(2 * (first + r) + 1);
    target[r] = std::sin(2 * a) * b;
  }
}
inline float initial_weight(int layer, long element) {
  const float wide = std::sqrt(3.0F / static_cast<float>(kLayers[layer].in));
  return wide * drawn(1'000'000L * (layer + 1) + element);
}

// The arrays of a pass over `rows`, in one block of memory.
struct Arrays {
  static constexpr int kPerRow = 64 * (2 * kCount + 3);  // floats

  Arrays(float* memory, int rows) {
    const auto take = [&] { return std::exchange(memory, memory + 64 * rows); };
    for (float*& array : y) { array = take(); }
    for (float*& array : dy) { array = take(); }
    target = take();
  }
  float* y[kCount + 1];   // y[i] is the input of layer i, y[i + 1] its output
  float* dy[kCount + 1];  // their gradients
  float* target;
};
