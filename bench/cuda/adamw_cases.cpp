#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench/cuda/cases.hpp"
#include "bench/cuda/moving.hpp"

namespace tessera::bench {
namespace {

/// fp32 masters; gradients and a copy of the parameters in `narrow`, unless that is fp32. The
/// elements are divided over `runs` runs of one table.
KernelContest adamw(Rig& rig, std::int64_t elems, DType narrow, std::int64_t runs = 1) {
  const Numbers master{rig, DType::fp32, elems}, gradient{rig, narrow, elems};
  const Numbers first{rig, DType::fp32, elems, 1e-3F}, second{rig, DType::fp32, elems, 0.0F};
  const bool copies = narrow != DType::fp32;
  const Numbers parameter{rig, narrow, copies ? elems : 1};
  kernels::StepScalars values;
  values.updates = 10;
  const auto scalars = device_bytes(rig, sizeof(values));
  rig.device().copy_in(scalars.get(), &values, sizeof(values), rig.stream());
  rig.stream().wait();
  const kernels::UpdateRun all{.master = master.as<float>(),
                               .parameter = copies ? parameter.values() : Values{},
                               .gradient = gradient.values(),
                               .first = first.values(),
                               .second = second.values(),
                               .elems = elems};
  std::vector<kernels::RuledRun<AdamW>> table;
  const std::int64_t each = elems / runs / 256 * 256;
  for (std::int64_t r = 0; r < runs; ++r) {
    const bool last = r + 1 == runs;
    table.push_back({all.slice(r * each, last ? elems - r * each : each), AdamW{}});
  }
  return moving(rig, [=, keep = std::array{master, gradient, first, second, parameter}, &rig] {
    rig.table().adamw(table, static_cast<const kernels::StepScalars*>(scalars.get()), rig.stream());
  });
}

}  // namespace

std::vector<CudaContest> adamw_contests(const CudaSizes& sizes) {
  std::vector<CudaContest> all;
  const std::string shape = fmt::format("{} parameters", sizes.parameters);
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    all.push_back({.group = "adamw",
                   .name = fmt::format("AdamW, {} gradients", to_string(dtype)),
                   .shape = shape,
                   .make = [=](Rig& rig) { return adamw(rig, sizes.parameters, dtype); },
                   .sample = dtype == DType::fp32});
  }
  // The number of runs and elements of GPT-2 124M.
  all.push_back({.group = "adamw",
                 .name = "AdamW, 110 runs",
                 .shape = shape,
                 .make =
                     [=](Rig& rig) {
                       return adamw(rig, std::min<std::int64_t>(sizes.parameters, 124'000'000),
                                    DType::bf16, 110);
                     },
                 .sample = false});
  return all;
}

}  // namespace tessera::bench
