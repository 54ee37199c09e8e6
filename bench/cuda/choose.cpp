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
  CudaModule::get().function<kernels::OfferProductAlgorithms>("tessera_cublaslt_offers")(
      product, kOffers, rig.stream(), offers);
  return offers;
}

/// A separate stream on which one algorithm computes a product, as in a run that read it from a
/// file.
class ChosenStream {
 public:
  ChosenStream(Rig& rig, const MatMul& product, const ProductAlgorithm& algorithm)
      : stream_{rig.device().make_compute_stream()} {
    choices_.products[kind_of(product)] = {.algorithm = algorithm};
    stream().state()->lend(rig.stream().state()->workspace());
    stream().state()->compute_with({.table = &rig.table(), .products = &choices_});
  }
  ChosenStream(const ChosenStream&) = delete;
  ChosenStream& operator=(const ChosenStream&) = delete;

  [[nodiscard]] Stream stream() const noexcept { return stream_.get(); }

 private:
  ProductChoices choices_;
  OwnedStream stream_;
};

/// The algorithms that work, and their cases.
struct Offers {
  std::vector<ProductAlgorithm> algorithms;
  std::vector<Case> cases;
};

/// cuBLASLt does not promise that every algorithm that it offers works.
Offers cases_of(Rig& rig, const ProductOnDevice& on) {
  Offers offers;
  for (const ProductAlgorithm& algorithm : offers_for(rig, on.product())) {
    try {
      const auto chosen = std::make_shared<ChosenStream>(rig, on.product(), algorithm);
      const bool first = offers.cases.empty();
      offers.cases.push_back(rig.repeated(
          first ? "the heuristic's first" : "another", 0, on.flops(),
          [on, chosen, &rig] { rig.table().matmul(on.product(), chosen->stream()); },
          chosen->stream()));
      offers.algorithms.push_back(algorithm);
    } catch (const Error&) {
      if (offers.cases.empty()) { throw; }  // the first is the one of a run without choices
    }
  }
  return offers;
}

double ms_of(const Timed& timed) {
  return 1e3 / timed.rate(Work::runs);
}

}  // namespace

ProductChoices choose_products(
    const std::vector<TrainingProduct>& products, int rounds,
    const std::function<void(const std::string& name, const Comparison& result)>& tell) {
  Rig rig;
  ProductChoices choices;
  CudaModule::get().function<kernels::FindProductMachine>("tessera_cublaslt_machine")(
      rig.stream(), choices.machine);
  for (const TrainingProduct& product : products) {
    const ProductOnDevice on{rig, product};
    const Offers offers = cases_of(rig, on);
    if (offers.cases.empty()) { continue; }
    Contest contest{Work::runs, offers.cases.front(), {}};
    contest.limits.assign(offers.cases.begin() + 1, offers.cases.end());
    const Comparison times = measure(contest, rounds);
    std::vector<Timed> all{times.ours};
    all.insert(all.end(), times.limits.begin(), times.limits.end());
    const auto best = static_cast<std::size_t>(std::distance(
        all.begin(),
        std::ranges::min_element(all, std::less<>{}, [](const Timed& t) { return ms_of(t); })));
    const Comparison result{Work::runs, all[best], {all.front()}};
    if (result.ratio(all.front()) >= kLeastGain) {
      choices.products[kind_of(on.product())] = {offers.algorithms[best], ms_of(all[best]),
                                                 ms_of(all.front())};
    }
    tell(product.name, result);
  }
  return choices;
}

}  // namespace tessera::bench
