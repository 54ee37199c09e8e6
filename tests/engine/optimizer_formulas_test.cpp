#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tessera/tessera.hpp"

// Checks training against the formulas in docs/optimizer-formulas.md, written as a reader would.
namespace tessera::test::optimizer_formulas_test {
namespace {

constexpr int kSteps = 6;
constexpr int kRanks = 2;
constexpr int kMicroBatches = 2;
constexpr float kRate = 0.0173F;  // set by set_learning_rate for the second half

float gradient_of(std::int64_t rank, std::int64_t step, std::int64_t micro_batch, std::int64_t i) {
  const std::int64_t n = (i * 37 + rank * 11 + step * 5 + micro_batch * 3) % 101 - 50;
  return static_cast<float>(n) * 0.0371F;
}

float initial_of(std::int64_t i) {
  return static_cast<float>(i % 7 - 3) * 0.113F;
}

struct Element {
  float w = 0;
  float m = 0;
  float v = 0;
};

/// Values that are the same for all elements of a step.
struct Step {
  float f;  // factor for average, clip and loss scale
  float lr;
  std::int64_t t;
};

// b^t by repeated squaring, as on the page.
double power(double b, std::int64_t t) {
  double result = 1.0;
  while (t > 0) {
    if (t % 2 == 1) { result = result * b; }
    b = b * b;
    t = t / 2;
  }
  return result;
}

using Formula = std::function<void(Element&, float summed, float wd, const Step&)>;

Formula adam_w(const AdamW& rule) {
  return [rule](Element& e, float summed, float wd, const Step& step) {
    const float b1 = rule.beta1;
    const float b2 = rule.beta2;
    const auto lr_t = static_cast<float>(static_cast<double>(step.lr) / (1.0 - power(b1, step.t)));
    const auto s = static_cast<float>(1.0 / std::sqrt(1.0 - power(b2, step.t)));
    const float g = summed * step.f;
    const float m_old = b1 * e.m;
    const float m_new = (1.0F - b1) * g;
    e.m = m_old + m_new;
    const float v_old = b2 * e.v;
    const float v_half = (1.0F - b2) * g;
    const float v_new = v_half * g;
    e.v = v_old + v_new;
    const float root = std::sqrt(e.v) * s;
    const float moved = lr_t * e.m / (root + rule.eps);
    const float decay = step.lr * wd;
    const float decayed = decay * e.w;
    e.w = e.w - (moved + decayed);
  };
}

Formula adam(const Adam& rule) {
  return [rule](Element& e, float summed, float wd, const Step& step) {
    const float b1 = rule.beta1;
    const float b2 = rule.beta2;
    const auto lr_t = static_cast<float>(static_cast<double>(step.lr) / (1.0 - power(b1, step.t)));
    const auto s = static_cast<float>(1.0 / std::sqrt(1.0 - power(b2, step.t)));
    const float averaged = summed * step.f;
    const float decayed = wd * e.w;
    const float g = averaged + decayed;
    const float m_old = b1 * e.m;
    const float m_new = (1.0F - b1) * g;
    e.m = m_old + m_new;
    const float v_old = b2 * e.v;
    const float v_half = (1.0F - b2) * g;
    const float v_new = v_half * g;
    e.v = v_old + v_new;
    const float root = std::sqrt(e.v) * s;
    e.w = e.w - lr_t * e.m / (root + rule.eps);
  };
}

Formula sgd(const SGD& rule) {
  return [rule](Element& e, float summed, float wd, const Step& step) {
    const float averaged = summed * step.f;
    const float decayed = wd * e.w;
    float u = averaged + decayed;
    if (rule.momentum != 0.0F) {
      const float kept = rule.momentum * e.m;
      u = kept + u;
      e.m = u;
    }
    const float moved = step.lr * u;
    e.w = e.w - moved;
  };
}

Formula lion(const Lion& rule) {
  return [rule](Element& e, float summed, float wd, const Step& step) {
    const float g = summed * step.f;
    const float u_old = rule.beta1 * e.m;
    const float u_new = (1.0F - rule.beta1) * g;
    const float u = u_old + u_new;
    const float sign = u > 0.0F ? 1.0F : u < 0.0F ? -1.0F : 0.0F;
    const float m_old = rule.beta2 * e.m;
    const float m_new = (1.0F - rule.beta2) * g;
    e.m = m_old + m_new;
    const float moved = step.lr * sign;
    const float decay = step.lr * wd;
    const float decayed = decay * e.w;
    e.w = e.w - (moved + decayed);
  };
}

/// Adds a rank's micro-batches to its gradient, then the ranks' gradients in rank order.
float summed_gradient(int step, std::int64_t i) {
  float sum = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    float own = 0;
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      own = own + gradient_of(rank, step, micro, i);
    }
    sum = rank == 0 ? own : sum + own;
  }
  return sum;
}

std::vector<float> by_formula(const Formula& formula, float rule_lr, float wd, std::int64_t elems) {
  std::vector<Element> elements(static_cast<std::size_t>(elems));
  std::vector<float> weights;
  for (std::int64_t i = 0; i < elems; ++i) {
    Element& e = elements[static_cast<std::size_t>(i)];
    e.w = initial_of(i);
    for (int step = 0; step < kSteps; ++step) {
      const Step now{.f = static_cast<float>(1.0 / (kRanks * kMicroBatches)),
                     .lr = step < kSteps / 2 ? rule_lr : kRate,
                     .t = step + 1};
      formula(e, summed_gradient(step, i), wd, now);
    }
    weights.push_back(e.w);
  }
  return weights;
}

using Weights = std::map<std::string, std::vector<float>>;

Weights trained(const Optimizer& rule, Strategy strategy) {
  Weights weights;
  std::mutex mutex;
  run_ranks(kRanks, [&](World& world) {
    ShardedModel model{world,
                       {.strategy = strategy,
                        .accumulate = kMicroBatches,
                        .accumulate_mode = AccumulateMode::deferred}};
    const Unit unit = model.add_unit("fc", {{"weight", {13, 11}}, {"bias", {17}}});
    model.materialize([](const ParameterInfo&, std::int64_t first, std::span<float> out) {
      for (float& x : out) { x = initial_of(first++); }
    });
    model.optimize_with(rule);
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSteps / 2) { model.set_learning_rate(kRate); }
      for (int micro = 0; micro < kMicroBatches; ++micro) {
        (void)model.forward(unit);
        const auto g = model.backward(unit);
        for (const char* name : {"weight", "bias"}) {
          const Tensor gradient = g.grad(name);
          float* const to = gradient;
          for (std::int64_t i = 0; i < gradient.shape().elems(); ++i) {
            to[i] += gradient_of(world.rank(), step, micro, i);
          }
        }
      }
      model.step();
    }
    model.export_state(StateTensor::parameters,
                       [&](const ParameterInfo& parameter, std::span<const float> values) {
                         const std::scoped_lock lock{mutex};
                         weights[parameter.name] = {values.begin(), values.end()};
                       });
  });
  return weights;
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]))
        << i << ": " << a[i] << " and " << b[i];
  }
}

template <class Rule>
void check(const Rule& rule, const Formula& formula) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero3}) {
    SCOPED_TRACE(to_string(strategy));
    const Weights weights = trained(rule, strategy);
    expect_same_bits(weights.at("weight"),
                     by_formula(formula, rule.lr, rule.weight_decay, 13 * 11));
    expect_same_bits(weights.at("bias"), by_formula(formula, rule.lr, 0.0F, 17));
  }
}

TEST(OptimizerFormulas, AdamWMatchesThePage) {
  const AdamW rule{
      .lr = 0.031F, .beta1 = 0.87F, .beta2 = 0.963F, .eps = 1e-7F, .weight_decay = 0.21F};
  check(rule, adam_w(rule));
}

TEST(OptimizerFormulas, AdamMatchesThePage) {
  const Adam rule{
      .lr = 0.031F, .beta1 = 0.87F, .beta2 = 0.963F, .eps = 1e-7F, .weight_decay = 0.21F};
  check(rule, adam(rule));
}

TEST(OptimizerFormulas, SGDMatchesThePageWithAndWithoutMomentum) {
  for (const float momentum : {0.0F, 0.83F}) {
    const SGD rule{.lr = 0.031F, .momentum = momentum, .weight_decay = 0.21F};
    check(rule, sgd(rule));
  }
}

TEST(OptimizerFormulas, LionMatchesThePage) {
  const Lion rule{.lr = 0.0031F, .beta1 = 0.87F, .beta2 = 0.963F, .weight_decay = 0.21F};
  check(rule, lion(rule));
}

// The page's order of operations matters: another order gives other bits.
TEST(OptimizerFormulas, AnotherOrderOfAdamWsOperationsHasOtherBits) {
  const AdamW rule{
      .lr = 0.031F, .beta1 = 0.87F, .beta2 = 0.963F, .eps = 1e-7F, .weight_decay = 0.21F};
  const Formula other = [&](Element& e, float summed, float wd, const Step& step) {
    Element page = e;
    adam_w(rule)(page, summed, 0.0F, step);
    const float decayed = e.w - step.lr * wd * e.w;  // decays first
    e = {decayed + (page.w - e.w), page.m, page.v};
  };
  EXPECT_NE(trained(rule, Strategy::zero3).at("weight"),
            by_formula(other, rule.lr, rule.weight_decay, 13 * 11));
}

}  // namespace
}  // namespace tessera::test::optimizer_formulas_test
