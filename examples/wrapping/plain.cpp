#include <cstdio>
#include <vector>

#include "kernels.hpp"

struct Layer {
  std::vector<float> w, b, dw, db, momentum_w, momentum_b;
};

void update(std::vector<float>& w, std::vector<float>& dw, std::vector<float>& momentum) {
  for (std::size_t i = 0; i < w.size(); ++i) {
    momentum[i] = 0.9F * momentum[i] + dw[i];
    w[i] -= 0.05F * momentum[i];
    dw[i] = 0;
  }
}

int main() {
  std::vector<Layer> layers;
  for (int i = 0; i < kCount; ++i) {
    const std::vector<float> w(kLayers[i].in * kLayers[i].out), b(kLayers[i].out);
    layers.push_back({w, b, w, b, w, b});
    for (long e = 0; float& weight : layers[i].w) { weight = initial_weight(i, e++); }
  }
  std::vector<float> memory(Arrays::kPerRow * kBatch);
  const Arrays a{memory.data(), kBatch};

  for (int step = 0; step < 400; ++step) {
    read_batch(step * kBatch, kBatch, a.y[0], a.target);
    for (int i = 0; i < kCount; ++i) {
      const Layer& l = layers[i];
      forward(kLayers[i], kBatch, a.y[i], l.w.data(), l.b.data(), a.y[i + 1]);
    }
    const double loss = mean_squared_error(kBatch, a.y[kCount], a.target, a.dy[kCount]);
    for (int i = kCount; i-- > 0;) {
      Layer& l = layers[i];
      backward(kLayers[i], kBatch, a.y[i], a.y[i + 1], a.dy[i + 1], l.w.data(), l.dw.data(),
               l.db.data(), a.dy[i]);
    }
    for (Layer& l : layers) {
      update(l.w, l.dw, l.momentum_w);
      update(l.b, l.db, l.momentum_b);
    }
    if (step % 100 == 99) { std::printf("step %d: loss %.4f\n", step + 1, loss); }
  }
}
