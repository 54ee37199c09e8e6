#include <fmt/format.h>

#include "bench/cuda/cases.hpp"
#include "bench/cuda/moving.hpp"

namespace tessera::bench {
namespace {

/// fp32 masters; gradients and a copy of the parameters in `narrow`, unless that is fp32.
Contest adamw(Rig& rig, std::int64_t elems, DType narrow) {
  const Numbers master{rig, DType::fp32, elems}, gradient{rig, narrow, elems};
  const Numbers first{rig, DType::fp32, elems, 1e-3F}, second{rig, DType::fp32, elems, 0.0F};
  const bool copies = narrow != DType::fp32;
  const Numbers parameter{rig, narrow, copies ? elems : 1};
  kernels::StepScalars values;
  values.updates = 10;
  const auto scalars = device_bytes(rig, sizeof(values));
  rig.device().copy_in(scalars.get(), &values, sizeof(values), rig.stream());
  rig.stream().wait();
  const double bytes = 24.0 + static_cast<double>(size_of(narrow)) * (copies ? 2 : 1);
  return moving(rig, times(elems, bytes), [=, &rig] {
    rig.table().adamw({.master = master.as<float>(),
                       .parameter = copies ? parameter.values() : Values{},
                       .gradient = gradient.values(),
                       .first = first.values(),
                       .second = second.values(),
                       .elems = elems},
                      AdamW{}, static_cast<const kernels::StepScalars*>(scalars.get()),
                      rig.stream());
  });
}

}  // namespace

std::vector<CudaContest> adamw_contests(const CudaSizes& sizes) {
  std::vector<CudaContest> all;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    all.push_back({"adamw", fmt::format("AdamW, {} gradients", to_string(dtype)),
                   [=](Rig& rig) { return adamw(rig, sizes.parameters, dtype); }});
  }
  return all;
}

}  // namespace tessera::bench
