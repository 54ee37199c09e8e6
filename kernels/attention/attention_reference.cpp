#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/attention.hpp"
#include "kernels/dropout/mask_key.hpp"
#include "kernels/support/typed.hpp"
#include "tessera/base/math.hpp"
#include "tessera/base/philox.hpp"

namespace tessera::kernels::reference {
namespace {

// One head of one sequence in fp64: q(t, d), k(t, d), v(t, d).
struct Head {
  ConstValues qkv;
  AttentionShape shape;
  Dropout rule;
  std::int64_t batch;
  std::int64_t head;
  std::int64_t first_head;

  SeenKeys keys;

  /// Index of element d of row t; part 0 is q, 1 is k, 2 is v.
  [[nodiscard]] std::int64_t at(std::int64_t part, std::int64_t t, std::int64_t d) const {
    const std::int64_t kv_heads = kv_heads_of(shape);
    const std::int64_t column =
        part == 0 ? head : shape.heads + (part - 1) * kv_heads + head / group_of(shape);
    return (batch * shape.seq + t) * packed_of(shape) + column * shape.head_size + d;
  }
  [[nodiscard]] double q(std::int64_t t, std::int64_t d) const { return element(qkv, at(0, t, d)); }
  [[nodiscard]] double k(std::int64_t t, std::int64_t d) const { return element(qkv, at(1, t, d)); }
  [[nodiscard]] double v(std::int64_t t, std::int64_t d) const { return element(qkv, at(2, t, d)); }
  [[nodiscard]] std::int64_t y_at(std::int64_t t, std::int64_t d) const {
    return ((batch * shape.seq + t) * shape.heads + head) * shape.head_size + d;
  }
  [[nodiscard]] double score(std::int64_t t, std::int64_t s) const {
    double sum = 0.0;
    for (std::int64_t d = 0; d < shape.head_size; ++d) { sum += q(t, d) * k(s, d); }
    return sum * scale_of(shape);
  }
  /// The probabilities with which row t attends to rows 0 .. t: 0 for those that it does not see.
  [[nodiscard]] std::vector<double> probabilities(std::int64_t t, double* log_sum_exp) const {
    std::vector<double> p(static_cast<std::size_t>(t + 1), 0.0);
    double max = score(t, t);
    for (std::int64_t s = keys.first(t); s <= t; ++s) {
      p[static_cast<std::size_t>(s)] = score(t, s);
      max = std::max(max, p[static_cast<std::size_t>(s)]);
    }
    double sum = 0.0;
    for (std::int64_t s = keys.first(t); s <= t; ++s) {
      double& x = p[static_cast<std::size_t>(s)];
      x = std::exp(x - max);
      sum += x;
    }
    for (double& x : p) { x /= sum; }
    *log_sum_exp = std::log(sum) + max;
    return p;
  }
  /// The factor of row t's probability for row s.
  [[nodiscard]] double kept(std::int64_t t, std::int64_t s) const {
    if (rule.p == 0.0F) { return 1.0; }
    const auto i = static_cast<std::uint64_t>(
        ((first_head + head) * shape.seq + t) * round_up(shape.seq, std::int64_t{4}) + s);
    const auto sample = static_cast<std::uint64_t>(rule.key.first_sample + batch);
    const auto words =
        philox4x32({static_cast<std::uint32_t>(i / 4), static_cast<std::uint32_t>(i / 4 >> 32U),
                    static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32U)},
                   mask_key(rule.key));
    return words[i % 4] < rule.threshold() ? 0.0 : static_cast<double>(rule.factor());
  }
};

void forward(const AttentionForward& args, const Head& head) {
  for (std::int64_t t = 0; t < args.shape.seq; ++t) {
    double log_sum_exp = 0.0;
    const std::vector<double> p = head.probabilities(t, &log_sum_exp);
    for (std::int64_t d = 0; d < args.shape.head_size; ++d) {
      double sum = 0.0;
      for (std::int64_t s = 0; s <= t; ++s) {
        sum += p[static_cast<std::size_t>(s)] * head.kept(t, s) * head.v(s, d);
      }
      set_element(args.y, head.y_at(t, d), static_cast<float>(sum));
    }
    args.log_sum_exp[(head.batch * args.shape.heads + head.head) * args.shape.seq + t] =
        static_cast<float>(log_sum_exp);
  }
}

// Recomputes everything from qkv and dy; y and log_sum_exp are not needed. Adds to `sums`, indexed
// as dqkv.
void backward(const AttentionBackward& args, const Head& head, std::vector<double>& sums) {
  const std::int64_t size = args.shape.head_size;
  const auto sum = [&](std::int64_t part, std::int64_t t, std::int64_t d) -> double& {
    return sums[static_cast<std::size_t>(head.at(part, t, d))];
  };
  for (std::int64_t t = 0; t < args.shape.seq; ++t) {
    double log_sum_exp = 0.0;
    const std::vector<double> p = head.probabilities(t, &log_sum_exp);
    std::vector<double> dp(p.size(), 0.0);
    double mean = 0.0;  // of dp under p
    for (std::int64_t s = 0; s <= t; ++s) {
      const auto i = static_cast<std::size_t>(s);
      const double kept = head.kept(t, s);
      for (std::int64_t d = 0; d < size; ++d) {
        const double dy = element(args.dy, head.y_at(t, d));
        dp[i] += dy * head.v(s, d) * kept;
        sum(2, s, d) += p[i] * kept * dy;
      }
      mean += p[i] * dp[i];
    }
    for (std::int64_t s = 0; s <= t; ++s) {
      const auto i = static_cast<std::size_t>(s);
      const double dscore = p[i] * (dp[i] - mean) * scale_of(args.shape);
      for (std::int64_t d = 0; d < size; ++d) {
        sum(0, t, d) += dscore * head.k(s, d);
        sum(1, s, d) += dscore * head.q(t, d);
      }
    }
  }
}

template <class Args, class Body>
void for_each_head(const Args& args, Body body) {
  const Dropout rule{nullptr, nullptr, 0, 0, args.dropout, args.key};
  for (std::int64_t b = 0; b < args.shape.batch; ++b) {
    for (std::int64_t h = 0; h < args.shape.heads; ++h) {
      body(Head{args.qkv, args.shape, rule, b, h, args.first_head, seen_keys(args, b)});
    }
  }
}

}  // namespace

void attention_forward(const AttentionForward& args, Stream) {
  for_each_head(args, [&](const Head& head) { forward(args, head); });
}
void attention_backward(const AttentionBackward& args, Stream) {
  const std::int64_t elems = args.shape.batch * args.shape.seq * packed_of(args.shape);
  std::vector<double> sums(static_cast<std::size_t>(elems), 0.0);
  for_each_head(args, [&](const Head& head) { backward(args, head, sums); });
  for (std::int64_t i = 0; i < elems; ++i) {
    set_element(args.dqkv, i, static_cast<float>(sums[static_cast<std::size_t>(i)]));
  }
}

}  // namespace tessera::kernels::reference
