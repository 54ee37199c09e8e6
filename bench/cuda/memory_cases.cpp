#include <fmt/format.h>

#include <utility>

#include "bench/cuda/cases.hpp"
#include "bench/cuda/moving.hpp"
#include "tessera/nn/decoder_config.hpp"

namespace tessera::bench {
namespace {

KernelContest cast(Rig& rig, std::int64_t elems, DType from_dtype, DType to_dtype) {
  const Numbers from{rig, from_dtype, elems}, to{rig, to_dtype, elems};
  return moving(rig, [=, &rig] {
    rig.table().cast({to.values().data, elems, to_dtype}, {from.values().data, elems, from_dtype},
                     rig.stream());
  });
}

KernelContest squared_norm(Rig& rig, std::int64_t elems, DType dtype) {
  const Numbers x{rig, dtype, elems};
  const auto sum = device_bytes(rig, sizeof(double));
  rig.device().fill(sum.get(), 0, sizeof(double), rig.stream());
  return moving(rig, [=, &rig] {
    const kernels::NormTerm term{x.values(), elems, static_cast<double*>(sum.get())};
    rig.table().squared_norm(std::array{term}, rig.stream());
  });
}

KernelContest gelu_forward(Rig& rig, std::int64_t elems) {
  const Numbers x{rig, DType::bf16, elems}, y{rig, DType::bf16, elems};
  return moving(rig, [=, &rig] {
    rig.table().gelu_forward(x.values(), y.values(), elems, rig.stream(), kernels::GELU::tanh);
  });
}

KernelContest gelu_backward(Rig& rig, std::int64_t elems) {
  const Numbers x{rig, DType::bf16, elems}, dy{rig, DType::bf16, elems};
  const Numbers dx{rig, DType::bf16, elems};
  return moving(rig, [=, &rig] {
    rig.table().gelu_backward(x.values(), dy.values(), dx.values(), elems, rig.stream(),
                              kernels::GELU::tanh);
  });
}

/// The arrays of both directions of a layer norm.
struct Norm {
  Norm(Rig& rig, std::int64_t rows, std::int64_t columns)
      : x{rig, DType::bf16, rows * columns},
        y{rig, DType::bf16, rows * columns},
        dx{rig, DType::bf16, rows * columns},
        weights{rig, DType::bf16, 2 * columns},
        gradients{rig, DType::fp32, 2 * columns},
        kept{rig, DType::fp32, 2 * rows} {}
  Numbers x, y, dx, weights, gradients, kept;
};

KernelContest layer_norm_forward(Rig& rig, std::int64_t rows, std::int64_t columns) {
  const Norm norm{rig, rows, columns};
  return moving(rig, [=, &rig] {
    rig.table().layer_norm_forward({.x = norm.x.values(),
                                    .weight = norm.weights.values(),
                                    .bias = norm.weights.values().at(columns),
                                    .y = norm.y.values(),
                                    .mean = norm.kept.as<float>(),
                                    .inverse_std = norm.kept.as<float>() + rows,
                                    .rows = rows,
                                    .columns = columns},
                                   rig.stream());
  });
}

KernelContest layer_norm_backward(Rig& rig, std::int64_t rows, std::int64_t columns) {
  const Norm norm{rig, rows, columns};
  return moving(rig, [=, &rig] {
    rig.table().layer_norm_backward({.x = norm.x.values(),
                                     .weight = norm.weights.values(),
                                     .mean = norm.kept.as<float>(),
                                     .inverse_std = norm.kept.as<float>() + rows,
                                     .dy = norm.y.values(),
                                     .dx = norm.dx.values(),
                                     .dweight = norm.gradients.values(),
                                     .dbias = norm.gradients.values().at(columns),
                                     .rows = rows,
                                     .columns = columns},
                                    rig.stream());
  });
}

std::vector<std::int32_t> some_targets(std::int64_t rows, std::int64_t classes) {
  std::vector<std::int32_t> targets(static_cast<std::size_t>(rows));
  std::int64_t state = 7;
  for (std::int32_t& target : targets) {
    state = (state * 48'271) % 2'147'483'647;
    target = static_cast<std::int32_t>(state % classes);
  }
  return targets;
}

/// Cross entropy in place.
KernelContest cross_entropy(Rig& rig, std::int64_t rows, std::int64_t classes) {
  const std::int64_t stride = nn::DecoderConfig{.vocab = classes}.logits_row_elems();
  const Numbers logits{rig, DType::bf16, rows * stride};
  const auto targets = on_device(rig, some_targets(rows, classes));
  const auto loss = device_bytes(rig, sizeof(double));
  rig.device().fill(loss.get(), 0, sizeof(double), rig.stream());
  return moving(rig, [=, &rig] {
    rig.table().cross_entropy({.logits = logits.values(),
                               .targets = static_cast<const std::int32_t*>(targets.get()),
                               .loss = static_cast<double*>(loss.get()),
                               .rows = rows,
                               .classes = classes,
                               .gradient_scale = 1.0F,
                               .loss_scale = 1.0,
                               .stride = stride},
                              rig.stream());
  });
}

}  // namespace

std::vector<CudaContest> memory_contests(const CudaSizes& sizes) {
  std::vector<CudaContest> all;
  const std::int64_t rows = sizes.tokens(), h = sizes.hidden(), wide = 4 * rows * h;
  const auto add = [&](const char* name, std::function<KernelContest(Rig&)> make) {
    all.push_back({"memory", name, sizes.activations(), std::move(make)});
  };
  add("cast fp32 to bf16", [=](Rig& rig) { return cast(rig, wide, DType::fp32, DType::bf16); });
  add("cast bf16 to fp32", [=](Rig& rig) { return cast(rig, wide, DType::bf16, DType::fp32); });
  add("squared norm, bf16", [=](Rig& rig) { return squared_norm(rig, wide, DType::bf16); });
  add("squared norm, fp32", [=](Rig& rig) { return squared_norm(rig, wide, DType::fp32); });
  add("GELU forward, bf16", [=](Rig& rig) { return gelu_forward(rig, wide); });
  add("GELU backward, bf16", [=](Rig& rig) { return gelu_backward(rig, wide); });
  add("layer norm forward, bf16", [=](Rig& rig) { return layer_norm_forward(rig, rows, h); });
  add("layer norm backward, bf16", [=](Rig& rig) { return layer_norm_backward(rig, rows, h); });
  add("cross entropy, bf16", [=](Rig& rig) { return cross_entropy(rig, rows, sizes.vocab); });
  all.back().shape += fmt::format(", vocab {}", sizes.vocab);
  return all;
}

}  // namespace tessera::bench
