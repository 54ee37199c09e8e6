#include "bench/cuda/choose.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "bench/cuda/product_case.hpp"
#include "device/cuda_module.hpp"
#include "device/stream_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera::bench {
namespace {

using kernels::MatMul;
using kernels::ProductAlgorithm;
using kernels::ProductChoices;

constexpr int kOffers = 8;
constexpr double kLeastGain = 1.01;

std::vector<ProductAlgorithm> offers_for(Rig& rig, const MatMul& product) {
  std::vector<ProductAlgorithm> offers;
  device::CudaModule::get().function<kernels::OfferProductAlgorithms>("tessera_cublaslt_offers")(
      product, kOffers, rig.stream(), offers);
  return offers;
}

/// A separate stream on which choices hold, as in a run that read them from a file.
class ChosenStream {
 public:
  ChosenStream(Rig& rig, ProductChoices choices)
      : choices_{std::move(choices)}, stream_{rig.device().make_compute_stream()} {
    stream().state()->lend(rig.stream().state()->workspace());
    device::StreamKernels kernels = rig.stream().state()->kernels();
    kernels.products = &choices_;
    stream().state()->compute_with(kernels);
  }
  ChosenStream(const ChosenStream&) = delete;
  ChosenStream& operator=(const ChosenStream&) = delete;

  [[nodiscard]] Stream stream() const noexcept { return stream_.get(); }

 private:
  ProductChoices choices_;
  OwnedStream stream_;
};

/// Ways to compute a product, first that of a run without a choice for it.
struct Ways {
  std::vector<ProductAlgorithm> algorithms;
  std::vector<Case> cases;

  void add(Rig& rig, const ProductOnDevice& on, const char* name, ProductChoices choices,
           const ProductAlgorithm& algorithm) {
    const auto chosen = std::make_shared<ChosenStream>(rig, std::move(choices));
    cases.push_back(rig.repeated(
        name, 0, on.flops(),
        [on, chosen, &rig] { rig.table().matmul(on.product(), chosen->stream()); },
        chosen->stream()));
    algorithms.push_back(algorithm);
  }
};

/// Without a choice, cuBLASLt's first algorithm computes a product; sums of columns come from a
/// kernel of their own after it, beside which the choices `so_far` hold. cuBLASLt does not promise
/// that every algorithm that it offers works.
Ways ways_of(Rig& rig, const ProductOnDevice& on, const ProductChoices& so_far) {
  Ways ways;
  if (on.product().bias_gradient) { ways.add(rig, on, "in two kernels", so_far, {}); }
  for (const ProductAlgorithm& algorithm : offers_for(rig, on.product())) {
    ProductChoices choices;
    choices.products[kind_of(on.product())] = {.algorithm = algorithm};
    try {
      ways.add(rig, on, ways.cases.empty() ? "the heuristic's first" : "another",
               std::move(choices), algorithm);
    } catch (const Error&) {
      if (ways.cases.empty()) { throw; }
    }
  }
  return ways;
}

double ms_of(const Timed& timed) {
  return 1e3 / timed.rate(Work::runs);
}

}  // namespace

ProductChoices choose_products(
    const std::vector<TrainingProduct>& products, int rounds, int spared_multiprocessors,
    const std::function<void(const TrainingProduct& product, const Comparison& result)>& tell) {
  Rig rig;
  ProductChoices choices;
  device::CudaModule::get().function<kernels::FindProductMachine>("tessera_cublaslt_machine")(
      rig.stream(), choices.machine);
  kernels::spare_multiprocessors(choices.machine, spared_multiprocessors);
  rig.stream().state()->compute_with(
      {.table = &rig.table(),
       .multiprocessors = spared_multiprocessors > 0 ? choices.machine.multiprocessors : 0});
  for (const TrainingProduct& product : products) {
    const ProductOnDevice on{rig, product};
    const Ways ways = ways_of(rig, on, choices);
    if (ways.cases.empty()) { continue; }
    Contest contest{Work::runs, ways.cases.front(), {}};
    contest.limits.assign(ways.cases.begin() + 1, ways.cases.end());
    const Comparison times = measure(contest, rounds);
    std::vector<Timed> all{times.ours};
    all.insert(all.end(), times.limits.begin(), times.limits.end());
    const auto best = static_cast<std::size_t>(std::distance(
        all.begin(),
        std::ranges::min_element(all, std::less<>{}, [](const Timed& t) { return ms_of(t); })));
    const Comparison result{Work::runs, all[best], {all.front()}};
    if (result.ratio(all.front()) >= kLeastGain) {
      choices.products[kind_of(on.product())] = {ways.algorithms[best], ms_of(all[best]),
                                                 ms_of(all.front())};
    }
    tell(product, result);
  }
  return choices;
}

}  // namespace tessera::bench
