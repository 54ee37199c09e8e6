#include "bench/cuda/cases.hpp"
#include "bench/cuda/product_case.hpp"

namespace tessera::bench {
namespace {

nn::DecoderConfig model_of(const CudaSizes& sizes) {
  return {.layers = 1,
          .hidden = sizes.hidden(),
          .heads = sizes.heads,
          .vocab = sizes.vocab,
          .seq = sizes.seq};
}

}  // namespace

std::vector<CudaContest> product_contests(const CudaSizes& sizes) {
  std::vector<CudaContest> all;
  const std::vector<TrainingProduct> products = training_products(model_of(sizes), sizes.batch);
  for (const TrainingProduct& product : products) {
    if (product.bias_gradient) { continue; }  // see choose.cpp
    all.push_back({"products", product.name, product.shape(),
                   [=](Rig& rig) { return plain_product_contest(rig, product); }});
  }
  for (const TrainingProduct& product : products) {
    if (!product.residual) { continue; }
    all.push_back({"products", product.name + " with residual", product.shape(),
                   [=](Rig& rig) { return residual_contest(rig, product); }, false});
  }
  return all;
}

}  // namespace tessera::bench
