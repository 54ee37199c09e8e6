#include "emulated_cuda/cudnn/attention.hpp"

#include <atomic>
#include <cmath>
#include <limits>

#include "tessera/base/half.hpp"

namespace emulated_cuda {
namespace {

using cudnn_frontend::DataType_t;

enum Role : std::size_t { kQ, kK, kV, kY, kStatistics, kDy, kDq, kDk, kDv };

/// One head of a call.
class Head {
 public:
  Head(const AttentionCall& call, std::int64_t sample, std::int64_t head)
      : call_{call}, sample_{sample}, head_{head} {}

  [[nodiscard]] double get(Role role, std::int64_t row, std::int64_t elem) const {
    const std::int64_t i = at(role, row, elem);
    const void* const data = call_.tensors[role].data;
    if (role == kStatistics) { return static_cast<const float*>(data)[i]; }
    return call_.type == DataType_t::BFLOAT16
               ? static_cast<const tessera::bfloat16*>(data)[i].to_float()
               : static_cast<const tessera::float16*>(data)[i].to_float();
  }
  void put(Role role, std::int64_t row, std::int64_t elem, double value) const {
    const std::int64_t i = at(role, row, elem);
    void* const data = call_.tensors[role].data;
    const auto rounded = static_cast<float>(value);
    if (role == kStatistics) {
      static_cast<float*>(data)[i] = rounded;
    } else if (call_.type == DataType_t::BFLOAT16) {
      static_cast<tessera::bfloat16*>(data)[i] = tessera::bfloat16::from_float(rounded);
    } else {
      static_cast<tessera::float16*>(data)[i] = tessera::float16::from_float(rounded);
    }
  }
  [[nodiscard]] double dot(Role a, std::int64_t row, Role b, std::int64_t other) const {
    double sum = 0;
    for (std::int64_t d = 0; d < call_.dim[3]; ++d) { sum += get(a, row, d) * get(b, other, d); }
    return sum;
  }
  [[nodiscard]] double score(std::int64_t row, std::int64_t key) const {
    return call_.options.scale * dot(kQ, row, kK, key);
  }

 private:
  [[nodiscard]] std::int64_t at(Role role, std::int64_t row, std::int64_t elem) const {
    const std::vector<std::int64_t>& stride = call_.tensors[role].stride;
    return sample_ * stride[0] + head_ * stride[1] + row * stride[2] + elem * stride[3];
  }

  const AttentionCall& call_;
  std::int64_t sample_;
  std::int64_t head_;
};

void forward(const AttentionCall& call, const Head& head) {
  for (std::int64_t row = 0; row < call.dim[2]; ++row) {
    double most = -std::numeric_limits<double>::infinity();
    for (std::int64_t key = 0; key <= row; ++key) { most = std::fmax(most, head.score(row, key)); }
    double sum = 0;
    std::vector<double> y(static_cast<std::size_t>(call.dim[3]));
    for (std::int64_t key = 0; key <= row; ++key) {
      const double weight = std::exp(head.score(row, key) - most);
      sum += weight;
      for (std::size_t d = 0; d < y.size(); ++d) {
        y[d] += weight * head.get(kV, key, static_cast<std::int64_t>(d));
      }
    }
    for (std::size_t d = 0; d < y.size(); ++d) {
      head.put(kY, row, static_cast<std::int64_t>(d), y[d] / sum);
    }
    head.put(kStatistics, row, 0, most + std::log(sum));
  }
}

void backward(const AttentionCall& call, const Head& head, std::int64_t first_row) {
  const std::int64_t rows = call.dim[2];
  const std::int64_t elems = call.dim[3];
  const auto zeros = [&] { return std::vector<float>(static_cast<std::size_t>(rows * elems)); };
  // Summed in fp32, so that the order of additions shows.
  std::vector<float> dq = zeros(), dk = zeros(), dv = zeros();
  const auto add = [&](std::vector<float>& to, std::int64_t row, std::int64_t d, double value) {
    to[static_cast<std::size_t>(row * elems + d)] += static_cast<float>(value);
  };
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t row = (i + first_row) % rows;
    const double mean = head.dot(kDy, row, kY, row);
    for (std::int64_t key = 0; key <= row; ++key) {
      const double weight = std::exp(head.score(row, key) - head.get(kStatistics, row, 0));
      const double slope = call.options.scale * weight * (head.dot(kDy, row, kV, key) - mean);
      for (std::int64_t d = 0; d < elems; ++d) {
        add(dv, key, d, weight * head.get(kDy, row, d));
        add(dq, row, d, slope * head.get(kK, key, d));
        add(dk, key, d, slope * head.get(kQ, row, d));
      }
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t d = 0; d < elems; ++d) {
      const auto i = static_cast<std::size_t>(row * elems + d);
      head.put(kDq, row, d, dq[i]);
      head.put(kDk, row, d, dk[i]);
      head.put(kDv, row, d, dv[i]);
    }
  }
}

}  // namespace

void AttentionCall::run() const {
  static std::atomic<std::int64_t> runs{0};
  const std::int64_t first_row = options.deterministic ? 0 : ++runs;
  for (std::int64_t sample = 0; sample < dim[0]; ++sample) {
    for (std::int64_t h = 0; h < dim[1]; ++h) {
      const Head head{*this, sample, h};
      tensors.size() == 5 ? forward(*this, head) : backward(*this, head, first_row);
    }
  }
}

}  // namespace emulated_cuda
