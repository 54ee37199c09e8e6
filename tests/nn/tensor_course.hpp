#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <latch>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "nn/drop.hpp"
#include "nn/nn_support.hpp"
#include "support/gpt_rounding.hpp"
#include "tessera/base/half.hpp"
#include "tessera/base/philox.hpp"
#include "tessera/nn/block.hpp"
#include "tessera/nn/cross_entropy.hpp"
#include "tessera/nn/embedding.hpp"
#include "tessera/world/run.hpp"

// One micro-batch of a small model through layers shared by ranks along `tensor`.
namespace tessera::test {

struct TensorCase {
  int ranks = 1;
  nn::TensorOptions options = {};
  float dropout = 0.0F;
  bool again = false;  ///< norms and GELU are recomputed in backward
  DType compute = DType::fp32;
  DeviceKind device = DeviceKind::cpu;
  nn::BatchShape shape = {.batch = 3, .seq = 7};
  bool late = false;  ///< the block's kernels run only after all of its work is enqueued
};

/// Arrays by name; each row comes from the ranks that have it. Rows of several ranks are
/// bit-identical.
struct TensorOutcome {
  std::map<std::string, std::vector<float>> arrays;
  std::vector<double> losses;  ///< by rank
};

/// One rank of the run. Sizes without common divisors; 3 heads, so that a fourth rank has none.
class TensorCourse {
 public:
  static constexpr std::int64_t kHidden = 60;
  static constexpr std::int64_t kHeads = 3;
  static constexpr std::int64_t kVocab = 257;

  TensorCourse(World& world, const TensorCase& from)
      : world_{world},
        case_{from},
        mesh_{from.ranks > 1 ? std::vector<MeshDim>{{"tensor", from.ranks}}
                             : std::vector<MeshDim>{}},
        ranks_{world, mesh_, from.options},
        shape_{from.shape},
        rows_{shape_.rows()},
        own_{ranks_.own(rows_)},
        embedding_{world, {kVocab, shape_.seq, kHidden, 320}, ranks_},
        block_{world, {.hidden = kHidden, .heads = kHeads}, {}, ranks_},
        ln_f_{"ln_f", kHidden, {.gradient = ranks_.row_gradient()}},
        loss_{world, kVocab, 1, embedding_.logits_row_elems(), ranks_},
        model_{world, {.strategy = Strategy::zero3, .compute = from.compute, .mesh = mesh_}} {
    std::vector<ParameterSpec> outer = embedding_.parameters();
    for (ParameterSpec& spec : ln_f_.parameters()) { outer.push_back(std::move(spec)); }
    root_ = model_.add_unit("root", std::move(outer), {.kind = UnitKind::root});
    layer_ = model_.add_unit("h", block_.parameters());
    model_.materialize(initial);
    model_.optimize_with(SGD{.lr = 0.0F, .momentum = 0.0F});
    saved_ = make_saved();
  }
  ~TensorCourse() { world_.quiesce(); }
  TensorCourse(const TensorCourse&) = delete;
  TensorCourse& operator=(const TensorCourse&) = delete;

  void run(TensorOutcome& to) {
    const std::int32_t* const inputs = tokens(1);
    const std::int32_t* const targets = tokens(2);
    const Values x = take(own_.elems * kHidden);
    const Values y = take(own_.elems * kHidden);
    const Values normed = take(rows_ * kHidden);
    const Values logits = take(rows_ * embedding_.logits_row_elems());
    auto* const loss = static_cast<double*>(zeroed(sizeof(double)));
    const nn::Norm::Saved ln_f{y, statistics(own_.elems), statistics(own_.elems)};
    {
      const auto scope = model_.forward(root_);
      embedding_.forward(scope, inputs, x, shape_, whole_);
      nn::drop(scope, saved_.dropout, nn::DropSite::embedding, {x, x, shape_, kHidden, own_});
      keep(to, "embedded", x, own_);
    }
    {
      const auto scope = model_.forward(layer_);
      saved_.ln_1.x = x;
      held([&] { block_.forward(scope, saved_, y, shape_); });
      keep(to, "middle", saved_.middle, own_);
      keep(to, "block", y, own_);
    }
    {
      const auto scope = model_.forward(root_);
      ln_f_.forward(scope, ln_f, normed.at(own_.first * kHidden), own_.elems);
      ranks_.gather(normed, rows_, kHidden);
      keep(to, "normed", normed, {0, rows_});
      embedding_.head(scope, normed, logits, rows_);
      auto* const evaluated = static_cast<double*>(zeroed(sizeof(double)));
      float* const exchanged = statistics(loss_.statistics_elems(rows_));
      loss_.evaluate(logits, targets, evaluated, rows_, rows_, exchanged);
      const std::int64_t first = rows_ / 3;
      loss_.forward_part(logits, targets, loss, {.rows = first, .all_rows = rows_}, nullptr,
                         exchanged);
      loss_.forward_part(logits.at(first * embedding_.logits_row_elems()), targets + first, loss,
                         {.rows = rows_ - first, .all_rows = rows_}, nullptr, exchanged);
      // Two orders of a sum in fp64.
      const double most = 2 * static_cast<double>(rows_) * 0x1p-53 * read_loss(loss);
      EXPECT_NEAR(read_loss(evaluated), read_loss(loss), most);
    }
    backward(to, inputs, normed, logits, ln_f);
    keep_loss(to, loss);
    model_.export_state(StateTensor::gradients,
                        [&](const ParameterInfo& parameter, std::span<const float> values) {
                          merge(to, parameter.name, {values.begin(), values.end()});
                        });
  }

 private:
  void backward(TensorOutcome& to, const std::int32_t* inputs, Values normed, Values logits,
                const nn::Norm::Saved& ln_f) {
    const Values scratch = take(block_.scratch_elems(rows_, saved_.dropout));
    const Values stream{zeroed(static_cast<std::size_t>(own_.elems * kHidden) * sizeof(float)),
                        case_.compute};
    {
      const auto scope = model_.backward(root_);
      embedding_.head_backward(scope, normed, logits, scratch, rows_);
      ranks_.sum(scratch, rows_, kHidden);
      ln_f_.backward(scope, ln_f, scratch.at(own_.first * kHidden), stream, own_.elems);
    }
    {
      const auto scope = model_.backward(layer_);
      held([&] { block_.backward(scope, saved_, stream, scratch, shape_); });
      keep(to, "dx", stream, own_);
    }
    const auto scope = model_.backward(root_);
    nn::drop(scope, saved_.dropout, nn::DropSite::embedding,
             {stream, stream, shape_, kHidden, own_});
    embedding_.backward(scope, inputs, stream, shape_, whole_);
  }

  template <class Enqueue>
  void held(const Enqueue& enqueue) {
    if (!case_.late) { return enqueue(); }
    std::latch enqueued{1};
    world_.compute_stream().call([&enqueued] { enqueued.wait(); });
    enqueue();
    world_.barrier();  // gives the channels time for work that does not wait
    enqueued.count_down();
    world_.compute_stream().wait();
  }

  nn::Block::Saved make_saved() {
    const nn::Dropout dropout{.p = case_.dropout, .seed = 3, .step = 5, .first_sample = 6};
    const auto mine = [&] { return take(own_.elems * kHidden); };
    const auto all = [&](std::int64_t columns) { return take(rows_ * columns); };
    const std::int64_t heads = block_.attention().columns();
    const std::int64_t wide = block_.mlp().columns();
    whole_ = all(kHidden);
    nn::Block::Saved saved{};
    saved.norms_again = case_.again;
    saved.mlp.activated_again = case_.again;
    saved.dropout = saved.attn.dropout = dropout;
    saved.normed_1 = all(kHidden);
    saved.normed_2 = case_.again ? saved.normed_1 : all(kHidden);
    saved.middle = mine();
    saved.ln_1 = {{}, statistics(own_.elems), statistics(own_.elems)};
    saved.ln_2 = {saved.middle, statistics(own_.elems), statistics(own_.elems)};
    saved.attn.x = saved.normed_1;
    saved.attn.qkv = all(3 * heads);
    saved.attn.mixed = all(heads);
    saved.attn.log_sum_exp = statistics(rows_ * block_.attention().heads());
    saved.attn.workspace = statistics(block_.workspace_elems(shape_, case_.compute));
    saved.mlp.x = saved.normed_2;
    saved.mlp.wide = all(wide);
    saved.mlp.activated = all(wide);
    // If the norms' outputs are not kept, their memory is used.
    saved.attn.whole = saved.mlp.whole = case_.again ? saved.normed_1 : whole_;
    return saved;
  }

  /// Memory whose bytes are all `value`; 0xFF makes NaNs.
  void* filled(std::size_t bytes, unsigned char value) {
    memory_.push_back(world_.allocate(Category::activations, bytes, "test"));
    world_.device().fill(memory_.back().data(), value, memory_.back().bytes(),
                         world_.compute_stream());
    return memory_.back().data();
  }
  void* zeroed(std::size_t bytes) { return filled(bytes, 0); }
  Values take(std::int64_t elems) {
    return {filled(static_cast<std::size_t>(elems) * size_of(case_.compute), 0xFF), case_.compute};
  }
  float* statistics(std::int64_t elems) {
    return static_cast<float*>(filled(static_cast<std::size_t>(elems) * sizeof(float), 0xFF));
  }
  const std::int32_t* tokens(std::uint32_t seed) {
    tokens_.push_back(random_tokens(rows_, kVocab, seed));
    void* const memory = zeroed(tokens_.back().size() * sizeof(std::int32_t));
    world_.device().copy_in(memory, tokens_.back().data(),
                            tokens_.back().size() * sizeof(std::int32_t), world_.compute_stream());
    return static_cast<const std::int32_t*>(memory);
  }

  /// Rows `rows` of [rows_, kHidden].
  void keep(TensorOutcome& to, const std::string& name, ConstValues values, const Range& rows) {
    const std::vector<float> mine = read(values, rows.elems * kHidden);
    std::vector<float> all(static_cast<std::size_t>(rows_ * kHidden), std::nanf(""));
    std::ranges::copy(mine, all.begin() + rows.first * kHidden);
    merge(to, name, all);
  }
  std::vector<float> read(ConstValues values, std::int64_t count) {
    const auto elems = static_cast<std::size_t>(count);
    std::vector<std::byte> bytes(elems * size_of(values.dtype));
    if (elems > 0) { copy_out(bytes.data(), values.data, bytes.size()); }
    std::vector<float> all(elems);
    for (std::size_t i = 0; i < elems; ++i) {
      std::uint16_t half = 0;
      if (values.dtype == DType::fp32) {
        std::memcpy(&all[i], bytes.data() + 4 * i, 4);
      } else {
        std::memcpy(&half, bytes.data() + 2 * i, 2);
        all[i] = bfloat16{half}.to_float();
      }
    }
    return all;
  }
  void keep_loss(TensorOutcome& to, const double* loss) {
    const double value = read_loss(loss);
    const std::scoped_lock lock{mutex()};
    to.losses.push_back(value);
  }
  double read_loss(const double* loss) {
    double value = 0.0;
    copy_out(&value, loss, sizeof value);
    return value;
  }
  void copy_out(void* to, const void* from, std::size_t bytes) {
    world_.device().copy_out(to, from, bytes, world_.compute_stream());
    world_.compute_stream().wait();
  }

  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static void merge(TensorOutcome& to, const std::string& name, const std::vector<float>& values) {
    const std::scoped_lock lock{mutex()};
    std::vector<float>& known = to.arrays[name];
    known.resize(values.size(), std::nanf(""));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) { continue; }
      ASSERT_TRUE(std::isnan(known[i]) || known[i] == values[i])
          << name << "[" << i << "] is " << values[i] << " and " << known[i];
      known[i] = values[i];
    }
  }

  static void initial(const ParameterInfo& parameter, std::int64_t first, std::span<float> out) {
    std::uint64_t key = 0;
    for (const char letter : parameter.name) {
      key = 31 * key + static_cast<unsigned char>(letter);
    }
    const bool norm =
        parameter.name.find("ln_") != std::string::npos && parameter.name.ends_with("weight");
    for (float& value : out) {
      const auto at = static_cast<std::uint64_t>(first++);
      const auto words = philox4x32({static_cast<std::uint32_t>(at), 0, 0, 0},
                                    {static_cast<std::uint32_t>(key), 7});
      const double uniform = static_cast<double>(words[0]) * 0x1p-31 - 1.0;
      value = static_cast<float>((norm ? 1.0 : 0.0) + 0.3 * uniform);
    }
  }

  World& world_;
  TensorCase case_;
  std::vector<MeshDim> mesh_;
  nn::TensorRanks ranks_;
  nn::BatchShape shape_;
  std::int64_t rows_;
  Range own_;
  nn::Embedding embedding_;
  nn::Block block_;
  nn::Norm ln_f_;
  nn::CrossEntropy loss_;
  ShardedModel model_;
  Unit root_;
  Unit layer_;
  std::vector<Buffer> memory_;
  std::vector<std::vector<std::int32_t>> tokens_;
  Values whole_;
  nn::Block::Saved saved_{};
};

inline TensorOutcome run_tensor_course(const TensorCase& from) {
  TensorOutcome outcome;
  WorldOptions options;
  options.device = from.device;
  if (from.late) { options.testing.compute_stream = ComputeStream::worker; }
  run_ranks(from.ranks, [&](World& world) { TensorCourse{world, from}.run(outcome); }, options);
  for (const double loss : outcome.losses) {
    EXPECT_EQ(loss, outcome.losses.front()) << "ranks disagree";
  }
  return outcome;
}

/// Relative to an array's norm: between two cuts of a run in fp32.
inline double between_cuts(const TensorCase& from) {
  const nn::DecoderConfig gpt{.layers = 1,
                              .hidden = TensorCourse::kHidden,
                              .heads = TensorCourse::kHeads,
                              .vocab = TensorCourse::kVocab,
                              .seq = from.shape.seq};
  return between_runs(gpt, from.shape.rows()).gradient;
}

/// |actual - expected| <= tolerance |expected|, in the Euclidean norm, for every array.
inline void expect_close(const TensorOutcome& actual, const TensorOutcome& expected,
                         double tolerance) {
  ASSERT_EQ(actual.arrays.size(), expected.arrays.size());
  for (const auto& [name, values] : expected.arrays) {
    const std::vector<float>& other = actual.arrays.at(name);
    ASSERT_EQ(other.size(), values.size()) << name;
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = values[i];
      difference += (other[i] - value) * (other[i] - value);
      norm += value * value;
    }
    ASSERT_GT(norm, 0.0) << name << ": nothing to compare";
    EXPECT_LE(std::sqrt(difference / norm), tolerance) << name;
  }
  const double loss = expected.losses.front();
  EXPECT_LE(std::abs(actual.losses.front() - loss), tolerance * loss);
}

}  // namespace tessera::test
