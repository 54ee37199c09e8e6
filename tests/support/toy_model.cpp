#include "support/toy_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "kernels/support/convert.hpp"
#include "support/rounding.hpp"

namespace tessera::test {
namespace {

std::size_t at(std::int64_t row, std::int64_t column, std::int64_t columns) {
  return static_cast<std::size_t>(row * columns + column);
}

/// Reads a parameter of any dtype, element by element.
struct Reader {
  ConstValues values;
  float operator[](std::int64_t i) const {
    float value = 0.0F;
    kernels::widen(&value, values.at(i), 1);
    return value;
  }
};

/// Adds to a gradient of any dtype; rounds each addition.
struct Adder {
  Values values;
  void add(std::int64_t i, float x) const {
    const float sum = Reader{values}[i] + x;
    kernels::narrow(values.at(i), &sum, 1);
  }
};

int token_of(std::int64_t global_row, std::int64_t vocab) {
  return static_cast<int>((global_row * global_row * 7 + global_row * 3 + 1) % vocab);
}

}  // namespace

ToyModel::ToyModel(World& world, const ModelOptions& options, const ToyConfig& config)
    : config_{config}, model_{world, options} {
  const std::int64_t v = config.vocab;
  const std::int64_t h = config.hidden;
  root_ = model_.add_unit("root", {{.name = "table", .shape = {v, h}, .room = config.room}},
                          {.kind = UnitKind::root});
  for (int i = 0; i < config.blocks; ++i) {
    blocks_.push_back(model_.add_unit("block." + std::to_string(i),
                                      {{"weight", {h, h}},
                                       {"scale", {h}, /*trainable=*/false, config.small_dtype},
                                       {"bias", {h}, /*trainable=*/true, config.small_dtype}}));
  }
  head_ = root_;
  if (config.tied_head) {
    std::vector<ParameterSpec> specs{
        {.name = "table", .shape = {v, h}, .tied_to = TiedTo{"root", "table"}}};
    if (config.head_bias) { specs.push_back({"bias", {v}}); }
    head_ = model_.add_unit("head", specs);
  }
  if (config.declared_order) {
    std::vector<Unit> order{root_};
    order.insert(order.end(), blocks_.begin(), blocks_.end());
    order.push_back(head_);
    model_.declare_order(order);
  }
  model_.materialize(init::normal(config.seed, 0.3F));
}

ToyModel::Pass ToyModel::run_forward(std::int64_t global_row, int rows) {
  Pass pass;
  std::vector<int>& tokens = pass.tokens;
  std::vector<int> targets;
  for (int r = 0; r < rows; ++r) {
    tokens.push_back(token_of(global_row + r, config_.vocab));
    targets.push_back((tokens.back() * 5 + 2) % static_cast<int>(config_.vocab));
  }
  const std::size_t layers = blocks_.size();
  std::vector<Matrix>& x = pass.x;
  x.resize(layers + 1);
  embed(tokens, x[0]);
  for (std::size_t i = 0; i < layers; ++i) { block_forward(i, x[i], x[i + 1]); }
  pass.loss = head(targets, x[layers], pass.dlogits);
  return pass;
}

double ToyModel::forward(std::int64_t global_row, int rows) {
  return run_forward(global_row, rows).loss;
}

double ToyModel::forward_backward(std::int64_t global_row, int rows) {
  const Pass pass = run_forward(global_row, rows);
  run_backward(pass);
  return pass.loss;
}

double ToyModel::forward_in_flight(int micro_batch, std::int64_t global_row, int rows) {
  micro_batch_ = micro_batch;
  return in_flight_.insert_or_assign(micro_batch, run_forward(global_row, rows)).first->second.loss;
}

void ToyModel::backward_in_flight(int micro_batch) {
  micro_batch_ = micro_batch;
  run_backward(in_flight_.extract(micro_batch).mapped());
}

ForwardScope ToyModel::open_forward(Unit unit) {
  return micro_batch_ ? model_.forward(unit, *micro_batch_) : model_.forward(unit);
}

BackwardScope ToyModel::open_backward(Unit unit) {
  return micro_batch_ ? model_.backward(unit, *micro_batch_) : model_.backward(unit);
}

void ToyModel::run_backward(const Pass& pass) {
  const auto& [tokens, x, dlogits, loss] = pass;
  const std::size_t layers = blocks_.size();
  std::vector<Matrix> dx(layers + 1);
  head_backward(x[layers], dlogits, dx[layers]);
  for (std::size_t i = layers; i > 0; --i) {
    block_backward(i - 1, x[i - 1], x[i], dx[i], dx[i - 1]);
  }
  embed_backward(tokens, dx[0]);
}

void ToyModel::embed(const std::vector<int>& tokens, Matrix& x) {
  const auto p = open_forward(root_);
  const Reader table{p["table"]};
  for (const int token : tokens) {
    for (std::int64_t k = 0; k < config_.hidden; ++k) {
      x.push_back(table[token * config_.hidden + k]);
    }
  }
}

void ToyModel::block_forward(std::size_t i, const Matrix& x, Matrix& y) {
  const auto p = open_forward(blocks_[i]);
  const Reader w{p["weight"]};
  const Reader b{p["bias"]};
  const Reader s{p["scale"]};
  const std::int64_t h = config_.hidden;
  y.resize(x.size());
  for (std::int64_t r = 0; r < std::ssize(x) / h; ++r) {
    for (std::int64_t c = 0; c < h; ++c) {
      float sum = b[c];
      for (std::int64_t k = 0; k < h; ++k) { sum += x[at(r, k, h)] * w[k * h + c]; }
      y[at(r, c, h)] = std::tanh(sum) * (1.0F + s[c]);
    }
  }
}

double ToyModel::head(const std::vector<int>& targets, const Matrix& x, Matrix& dlogits) {
  const auto p = open_forward(head_);
  const Reader table{p["table"]};
  Reader bias;
  if (has_head_bias()) { bias.values = p["bias"]; }
  const std::int64_t h = config_.hidden;
  const std::int64_t v = config_.vocab;
  const auto rows = std::ssize(targets);
  const float* const asked = model_.loss_scale();
  const float loss_scale = asked == nullptr ? 1.0F : *asked;
  dlogits.resize(static_cast<std::size_t>(rows * v));
  double loss = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* z = &dlogits[at(r, 0, v)];
    float highest = -INFINITY;
    for (std::int64_t c = 0; c < v; ++c) {
      z[c] = bias.values ? bias[c] : 0.0F;
      for (std::int64_t k = 0; k < h; ++k) { z[c] += x[at(r, k, h)] * table[c * h + k]; }
      highest = std::max(highest, z[c]);
    }
    float sum = 0.0F;
    for (std::int64_t c = 0; c < v; ++c) { sum += std::exp(z[c] - highest); }
    const auto target = static_cast<std::int64_t>(targets[static_cast<std::size_t>(r)]);
    loss += static_cast<double>(highest) + std::log(static_cast<double>(sum)) -
            static_cast<double>(z[target]);
    for (std::int64_t c = 0; c < v; ++c) {
      z[c] =
          (std::exp(z[c] - highest) / sum - (c == target ? 1.0F : 0.0F)) / static_cast<float>(rows);
      z[c] *= loss_scale;
    }
  }
  return loss / static_cast<double>(rows);
}

void ToyModel::head_backward(const Matrix& x, const Matrix& dlogits, Matrix& dx) {
  const auto g = open_backward(head_);
  const Reader table{g["table"]};
  const Adder dtable{g.grad("table")};
  Adder dbias;
  if (has_head_bias()) { dbias.values = g.grad("bias"); }
  const std::int64_t h = config_.hidden;
  const std::int64_t v = config_.vocab;
  dx.assign(x.size(), 0.0F);
  for (std::int64_t r = 0; r < std::ssize(x) / h; ++r) {
    for (std::int64_t c = 0; c < v; ++c) {
      const float dz = dlogits[at(r, c, v)];
      if (dbias.values) { dbias.add(c, dz); }
      for (std::int64_t k = 0; k < h; ++k) {
        dx[at(r, k, h)] += dz * table[c * h + k];
        dtable.add(c * h + k, dz * x[at(r, k, h)]);
      }
    }
  }
}

void ToyModel::block_backward(std::size_t i, const Matrix& x, const Matrix& y, const Matrix& dy,
                              Matrix& dx) {
  const auto g = open_backward(blocks_[i]);
  const Reader w{g["weight"]};
  const Reader s{g["scale"]};
  const Adder dw{g.grad("weight")};
  const Adder db{g.grad("bias")};
  const std::int64_t h = config_.hidden;
  dx.assign(x.size(), 0.0F);
  for (std::int64_t r = 0; r < std::ssize(x) / h; ++r) {
    for (std::int64_t c = 0; c < h; ++c) {
      const float scale = 1.0F + s[c];
      const float t = y[at(r, c, h)] / scale;
      const float da = dy[at(r, c, h)] * scale * (1.0F - t * t);
      db.add(c, da);
      for (std::int64_t k = 0; k < h; ++k) {
        dw.add(k * h + c, x[at(r, k, h)] * da);
        dx[at(r, k, h)] += w[k * h + c] * da;
      }
    }
  }
  spoil(i, g);
}

void ToyModel::spoil(std::size_t block, const BackwardScope& scope) {
  if (!spoilt_ || spoilt_->first != block) { return; }
  Adder{scope.grad("bias")}.add(0, spoilt_->second);
  spoilt_.reset();
}

void ToyModel::embed_backward(const std::vector<int>& tokens, const Matrix& dx) {
  const auto g = open_backward(root_);
  const Adder dtable{g.grad("table")};
  const std::int64_t h = config_.hidden;
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    for (std::int64_t k = 0; k < h; ++k) {
      dtable.add(tokens[r] * h + k, dx[at(static_cast<std::int64_t>(r), k, h)]);
    }
  }
}

std::map<std::string, std::vector<float>> exported(ShardedModel& model, StateTensor what) {
  std::map<std::string, std::vector<float>> tensors;
  model.export_state(what, [&](const ParameterInfo& info, std::span<const float> values) {
    tensors[info.full_name()].assign(values.begin(), values.end());
  });
  return tensors;
}

namespace {

/// Copies the pieces that this rank updates to their places.
void join_masters(ShardedModel& model, std::map<std::string, std::vector<float>>& masters) {
  model.export_masters(
      [&](const ParameterInfo& info, std::int64_t first, std::span<const float> values) {
        std::vector<float>& whole = masters[info.full_name()];
        whole.resize(static_cast<std::size_t>(info.shape.elems()));
        std::copy(values.begin(), values.end(), whole.begin() + first);
      });
}

}  // namespace

// tanh, exp and log count 8. A gradient is a sum over a step's rows, of which the table has two.
ToyBounds between_orders(const ToyConfig& toy, std::int64_t rows_a_step) {
  const double block = sum_roundings(toy.hidden) + 8 + 2;
  const double forward =
      toy.blocks * block + sum_roundings(toy.hidden) + 8 + sum_roundings(toy.vocab) + 8;
  const double backward = 4 + sum_roundings(toy.vocab) +
                          toy.blocks * (sum_roundings(toy.hidden) + 6) +
                          sum_roundings(2 * rows_a_step);
  const double bound = chain_difference(forward + backward);
  return {.gradient = bound, .loss = bound};
}
ToyBounds between_orders(const ToyRun& run) {
  return between_orders(run.toy, std::int64_t{run.toy.batch} * run.ranks * run.options.accumulate);
}

ToyOutcome run_toy(const ToyRun& run) {
  return run_toy(run, run_ranks);
}

ToyOutcome run_toy(const ToyRun& run, const StartRanks& start) {
  ToyOutcome outcome;
  std::mutex masters_of_all;
  const auto body = [&](World& world) {
    ToyModel toy{world, run.options, run.toy};
    OptimizerOptions options = run.optimizer_options;
    options.clip_norm = run.clip_norm;
    toy.model().optimize_with(run.optimizer, options);
    const int accumulate = run.options.accumulate;
    const std::int64_t rows_per_step =
        static_cast<std::int64_t>(run.toy.batch) * world.size() * accumulate;
    for (int step = 0; step < run.steps; ++step) {
      double loss = 0.0;
      const auto row_of = [&](int micro) {
        const std::int64_t part = static_cast<std::int64_t>(micro) * world.size() + world.rank();
        return step * rows_per_step + part * run.toy.batch;
      };
      int forwards = 0;
      int backwards = 0;
      for (const char pass : run.schedule) {
        if (pass == 'F') {
          loss += toy.forward_in_flight(forwards, row_of(forwards), run.toy.batch) / accumulate;
          ++forwards;
        } else {
          toy.backward_in_flight(backwards++);
        }
      }
      for (int micro = 0; run.schedule.empty() && micro < accumulate; ++micro) {
        for (const Spoilt& spoilt : run.spoilt) {
          if (std::tie(spoilt.rank, spoilt.step, spoilt.micro_batch) ==
              std::make_tuple(world.rank(), step, micro)) {
            toy.spoil_next(1, spoilt.value);
          }
        }
        loss += toy.forward_backward(row_of(micro), run.toy.batch) / accumulate;
      }
      if (step == 0) {
        auto gradients = exported(toy.model(), StateTensor::gradients);
        if (world.rank() == 0) { outcome.first_gradients = std::move(gradients); }
      }
      if (run.halves_a_block) {
        for (const std::vector<double>& unit : toy.model().gradient_norms()) {
          if (world.rank() == 0) {
            outcome.norms.insert(outcome.norms.end(), unit.begin(), unit.end());
          }
        }
        toy.model().scale_gradient(toy.blocks().front(), "weight", 0.5F);
      }
      toy.model().step(&loss);
      const StepReport report = toy.model().report();
      if (world.rank() == 0) {
        outcome.losses.push_back(report.loss);
        outcome.norms.push_back(report.grad_norm);
        outcome.loss_scales.push_back(report.loss_scale);
        outcome.skipped.push_back(report.skipped);
        outcome.clipped = outcome.clipped || report.clip_coefficient < 1.0F;
      }
    }
    auto parameters = exported(toy.model(), StateTensor::parameters);
    if (world.rank() == 0) { outcome.parameters = std::move(parameters); }
    const std::lock_guard lock{masters_of_all};
    join_masters(toy.model(), outcome.masters);
  };
  start(run.ranks, body, run.world);
  return outcome;
}

namespace {

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

std::string differing(const char* what, const std::map<std::string, std::vector<float>>& a,
                      const std::map<std::string, std::vector<float>>& b) {
  if (a.size() != b.size()) { return std::string{what} + " count "; }
  std::string names;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || !same_bits(values, other->second)) {
      names += std::string{what} + " " + name + " ";
    }
  }
  return names;
}

}  // namespace

std::string difference(const ToyOutcome& a, const ToyOutcome& b) {
  std::string names;
  if (!same_bits(a.losses, b.losses)) { names += "losses "; }
  if (!same_bits(a.norms, b.norms)) { names += "norms "; }
  if (a.skipped != b.skipped) { names += "skipped steps "; }
  if (!same_bits(a.loss_scales, b.loss_scales)) { names += "loss scales "; }
  names += differing("gradient", a.first_gradients, b.first_gradients);
  names += differing("parameter", a.parameters, b.parameters);
  names += differing("master", a.masters, b.masters);
  return names;
}

}  // namespace tessera::test
