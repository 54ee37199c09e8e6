#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/support/master_parts.hpp"
#include "kernels/update/round_weights.hpp"
#include "kernels/values.hpp"
#include "tessera/base/math.hpp"

// Runs of the optimizer kernels on arrays of every kind, by the references and on a device.
namespace tessera::kernels::updates {

using Step = std::function<void(const UpdateRun&, const StepScalars*)>;

/// An optimizer rule with its hyperparameters.
struct Rule {
  const char* name;
  int moments;
  std::function<void(const UpdateRun&, const StepScalars*, Stream)> reference;
  /// All runs in one call.
  std::function<void(const Table&, std::span<const UpdateRun>, const StepScalars*, Stream)> kernel;
};

template <class Hyper>
Rule rule(const char* name, int moments, const Hyper& hyper, auto* reference,
          auto* Table::* kernel) {
  return {name, moments,
          [=](const UpdateRun& run, const StepScalars* scalars, Stream stream) {
            reference(alone(run, hyper), scalars, stream);
          },
          [=](const Table& table, std::span<const UpdateRun> runs, const StepScalars* scalars,
              Stream stream) {
            std::vector<RuledRun<Hyper>> ruled;
            for (const UpdateRun& run : runs) { ruled.push_back({run, hyper}); }
            (table.*kernel)(ruled, scalars, stream);
          }};
}

/// The rules that have moments.
inline std::vector<Rule> rules_of_moments() {
  return {rule("adamw", 2, AdamW{}, &reference::adamw, &Table::adamw),
          rule("adam", 2, Adam{.weight_decay = 0.1F}, &reference::adam, &Table::adam),
          rule("lion", 1, Lion{.lr = 0.01F, .weight_decay = 0.1F}, &reference::lion, &Table::lion),
          rule("momentum", 1, SGD{.lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.1F},
               &reference::sgd, &Table::sgd)};
}
inline std::vector<Rule> rules() {
  std::vector<Rule> all = rules_of_moments();
  all.push_back(rule("sgd", 0, SGD{.lr = 0.1F, .momentum = 0.0F, .weight_decay = 0.1F},
                     &reference::sgd, &Table::sgd));
  return all;
}

struct Layout {
  std::int64_t elems = 700;
  DType gradient = DType::fp32;
  DType parameter = DType::fp32;  ///< fp32: no copy
  DType first = DType::fp32;
  DType second = DType::fp32;
  Rounding rounding = Rounding::nearest;
  bool remainder = false;         ///< masters keep remainders; bf16 parameters only
  bool quantised = false;         ///< moments are quantised, and zero at first
  std::int64_t offset = 0;        ///< of all arrays except quantised moments
  std::int64_t first_offset = 0;  ///< of quantised moments
  std::int64_t second_offset = 0;
  std::int64_t gradient_skew = 0;  ///< added to `offset` for the gradient
  std::int64_t first_in_parameter = 0;
};

inline std::string text(const Layout& layout) {
  std::string all = std::to_string(layout.elems) + " elements at " + std::to_string(layout.offset);
  for (const DType dtype : {layout.gradient, layout.parameter, layout.first, layout.second}) {
    all += std::string{" "} + std::string{to_string(dtype)};
  }
  if (layout.remainder) { all += " remainders"; }
  if (layout.quantised) { all += " int8"; }
  return all + " " + std::string{to_string(layout.rounding)} + " from " +
         std::to_string(layout.first_in_parameter);
}

/// Initial contents of a run's arrays, and the gradients of its updates.
struct Start {
  Floats weight, first, second;
  std::vector<Floats> gradients;

  explicit Start(std::int64_t elems, unsigned updates = 1)
      : weight{random_floats(elems, 1)},
        first{random_floats(elems, 3, 0.1F)},
        second{random_floats(elems, 4, 0.1F)} {
    for (float& value : second) { value = std::abs(value); }
    for (unsigned t = 0; t < updates; ++t) { gradients.push_back(random_floats(elems, 20 + t)); }
  }
};

/// Contents of the arrays after the updates.
struct Outcome {
  Bytes weight, parameter, remainder, first, second, first_scales, second_scales;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

inline StepScalars at_update(std::int64_t t, float factor = 0.37F) {
  StepScalars scalars;
  scalars.updates = t;
  scalars.gradient_factor = factor;
  return scalars;
}

/// A part of the masters as it is laid out in memory.
inline Bytes part_of(const Floats& floats, DType dtype, MasterPart part) {
  Bytes bytes(floats.size() * size_of(dtype));
  store_part({bytes.data(), dtype}, part, floats.data(), std::ssize(floats));
  return bytes;
}

/// The arrays of a run on a device.
class Arrays {
 public:
  Arrays(DeviceBench& bench, const Layout& layout, const Start& start)
      : layout_{layout},
        weight_{bench, start.weight, DType::fp32, layout.offset},
        parameter_{bench,
                   part_of(layout.remainder ? start.weight : filled(layout.elems, 0.0F),
                           layout.parameter, MasterPart::parameter),
                   bytes_of(layout.offset, layout.parameter)},
        remainder_{bench, part_of(start.weight, DType::bf16, MasterPart::remainder),
                   bytes_of(layout.offset, DType::bf16)},
        first_{bench, moment(start.first, layout.first),
               start_of(layout.first, layout.first_offset)},
        second_{bench, moment(start.second, layout.second),
                start_of(layout.second, layout.second_offset)},
        first_scales_{bench, scales(), DType::fp32},
        second_scales_{bench, scales(), DType::fp32} {}

  UpdateRun run(int moments, ConstValues gradient) {
    UpdateRun run;
    run.elems = layout_.elems;
    run.rounding = layout_.rounding;
    run.seed = 0x123456789ABCULL;
    run.parameter_id = 6;
    run.first_in_parameter = layout_.first_in_parameter;
    run.gradient = gradient;
    if (layout_.remainder) {
      run.remainder = reinterpret_cast<std::uint16_t*>(remainder_.data());
    } else {
      run.master = weight_.values().as<float>();
    }
    if (layout_.parameter != DType::fp32) {
      run.parameter = {parameter_.data(), layout_.parameter};
    }
    if (layout_.quantised) {
      run.first_quantised = {codes(first_), first_scales_.values().as<float>()};
      if (moments > 1) {
        run.second_quantised = {codes(second_), second_scales_.values().as<float>()};
      }
      return run;
    }
    if (moments > 0) { run.first = {first_.data(), layout_.first}; }
    if (moments > 1) { run.second = {second_.data(), layout_.second}; }
    return run;
  }
  Outcome read() {
    return {weight_.read(), parameter_.read(),    remainder_.read(),    first_.read(),
            second_.read(), first_scales_.read(), second_scales_.read()};
  }

 private:
  static std::int64_t bytes_of(std::int64_t elems, DType dtype) {
    return elems * static_cast<std::int64_t>(size_of(dtype));
  }
  [[nodiscard]] std::int64_t start_of(DType moment, std::int64_t quantised) const {
    return layout_.quantised ? quantised : bytes_of(layout_.offset, moment);
  }
  [[nodiscard]] Bytes moment(const Floats& values, DType dtype) const {
    return layout_.quantised ? Bytes(values.size()) : encoded(values, dtype);
  }
  static std::uint8_t* codes(DeviceArray<std::byte>& moment) {
    return reinterpret_cast<std::uint8_t*>(moment.data());
  }
  [[nodiscard]] Floats scales() const {
    return filled(layout_.quantised ? ceil_div(layout_.elems, kMomentBlock) : 0, 0.0F);
  }

  Layout layout_;
  DeviceValues weight_;
  DeviceArray<std::byte> parameter_, remainder_, first_, second_;
  DeviceValues first_scales_, second_scales_;
};

/// Applies the updates `scalars` to a start, with its gradients in turn; calls `step` once per
/// update.
inline Outcome outcome_of(DeviceBench& bench, const Layout& layout, const Start& start, int moments,
                          const std::vector<StepScalars>& scalars, const Step& step) {
  Arrays arrays{bench, layout, start};
  for (std::size_t t = 0; t < scalars.size(); ++t) {
    DeviceValues gradient{bench, start.gradients[t % start.gradients.size()], layout.gradient,
                          layout.offset + layout.gradient_skew};
    DeviceArray<StepScalars> on_device{bench, std::vector<StepScalars>{scalars[t]}};
    step(arrays.run(moments, gradient), on_device.data());
    bench.stream().wait();
  }
  return arrays.read();
}

/// Whether remainders are equal. Next to a NaN they may be anything.
inline bool same_remainders(const Outcome& a, const Outcome& b) {
  if (a.remainder == b.remainder) { return true; }
  const Floats x = decoded(a.remainder, DType::bf16), y = decoded(b.remainder, DType::bf16);
  const Floats parameter = decoded(a.parameter, DType::bf16);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isnan(parameter[i]) && !same_bits({&x[i], 1}, {&y[i], 1})) { return false; }
  }
  return true;
}

/// Fixture of kernels that have the references' bits.
class UpdateTest : public BackendTest {
 protected:
  Outcome on_device(const Rule& rule, const Layout& layout, const Start& start,
                    const std::vector<StepScalars>& scalars) {
    return in_pieces(rule, layout, start, scalars, {0, layout.elems});
  }
  /// The same, with the run cut into a table of pieces.
  Outcome in_pieces(const Rule& rule, const Layout& layout, const Start& start,
                    const std::vector<StepScalars>& scalars,
                    const std::vector<std::int64_t>& cuts) {
    return outcome_of(bench(), layout, start, rule.moments, scalars,
                      [&](const UpdateRun& run, const StepScalars* s) {
                        std::vector<UpdateRun> pieces;
                        for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
                          pieces.push_back(run.slice(cuts[i], cuts[i + 1] - cuts[i]));
                        }
                        rule.kernel(table(), pieces, s, stream());
                      });
  }
  Outcome by_reference(const Rule& rule, const Layout& layout, const Start& start,
                       const std::vector<StepScalars>& scalars) {
    return outcome_of(host_, layout, start, rule.moments, scalars,
                      [&](const UpdateRun& run, const StepScalars* s) {
                        rule.reference(run, s, host_.stream());
                      });
  }

  struct Followed {
    Start start;
    Floats weight;
  };
  /// Starts from zero moments; every update has new fp32 gradients, halved.
  Followed follow(const Rule& rule, std::int64_t elems, unsigned count) {
    Start start{elems, count};
    start.first = start.second = filled(elems, 0.0F);
    std::vector<StepScalars> scalars;
    for (std::int64_t t = 1; t <= count; ++t) { scalars.push_back(at_update(t, 0.5F)); }
    const Outcome outcome = on_device(rule, {.elems = elems}, start, scalars);
    return {start, decoded(outcome.weight, DType::fp32)};
  }

  void expect_reference(const Rule& rule, const Layout& layout,
                        const std::vector<StepScalars>& scalars) {
    expect_reference(rule, layout, scalars,
                     Start{layout.elems, static_cast<unsigned>(scalars.size())});
  }
  void expect_reference(const Rule& rule, const Layout& layout,
                        const std::vector<StepScalars>& scalars, const Start& start) {
    SCOPED_TRACE(std::string{rule.name} + ", " + text(layout));
    const Outcome expected = by_reference(rule, layout, start, scalars);
    const Outcome actual = on_device(rule, layout, start, scalars);
    const bool quantised = layout.quantised;
    EXPECT_TRUE(same_values(actual.weight, expected.weight, DType::fp32)) << "weight";
    EXPECT_TRUE(same_values(actual.parameter, expected.parameter, layout.parameter)) << "parameter";
    EXPECT_TRUE(same_remainders(actual, expected)) << "remainder";
    EXPECT_TRUE(quantised ? actual.first == expected.first
                          : same_values(actual.first, expected.first, layout.first))
        << "first moment";
    EXPECT_TRUE(quantised ? actual.second == expected.second
                          : same_values(actual.second, expected.second, layout.second))
        << "second moment";
    EXPECT_EQ(actual.first_scales, expected.first_scales);
    EXPECT_EQ(actual.second_scales, expected.second_scales);
  }

 private:
  DeviceBench host_{make_cpu_device()};
};

/// The masters joined from the halves that a layout with remainders keeps.
inline Bytes joined(const Outcome& outcome) {
  const std::size_t elems = outcome.parameter.size() / sizeof(bfloat16);
  Floats masters(elems);
  join_masters(masters.data(), reinterpret_cast<const bfloat16*>(outcome.parameter.data()),
               reinterpret_cast<const std::uint16_t*>(outcome.remainder.data()),
               static_cast<std::int64_t>(elems));
  return encoded(masters, DType::fp32);
}

}  // namespace tessera::kernels::updates
