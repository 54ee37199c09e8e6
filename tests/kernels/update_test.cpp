// What holds of every optimizer kernel: fp32, bf16 and fp16, each rounding, every cut.
#include <cstring>
#include <functional>
#include <string>

#include "base/philox.hpp"
#include "kernels/support.hpp"
#include "kernels/support/master_parts.hpp"
#include "kernels/update/round_weights.hpp"
#include "kernels/update/update_run.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels {
namespace {

/// A part of floats in an array of any dtype.
class Array {
 public:
  Array(const Floats& floats, DType dtype, MasterPart part = MasterPart::value)
      : dtype_{dtype}, bytes_(floats.size() * size_of(dtype) + 64, std::byte{0xA5}) {
    store_part(values(), part, floats.data(), std::ssize(floats));
  }
  [[nodiscard]] void* data() { return bytes_.data() + 2 * size_of(dtype_); }
  [[nodiscard]] Values values() { return {data(), dtype_}; }
  friend bool operator==(const Array& a, const Array& b) { return a.bytes_ == b.bytes_; }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

/// How the masters of 16-bit parameters are kept.
enum class Kept : std::uint8_t { whole, remainder };

struct DTypes {
  DType parameter = DType::fp32;  ///< fp32: the master is the parameter
  DType gradient = DType::fp32;
  DType moment = DType::fp32;
  Rounding rounding = Rounding::nearest;
  Kept masters = Kept::whole;
};

std::vector<DTypes> all_dtypes() {
  std::vector<DTypes> all;
  for (const DType parameter : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const DType gradient : {DType::fp32, DType::bf16, DType::fp16}) {
      for (const DType moment : {DType::fp32, DType::bf16}) {
        for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
          all.push_back({parameter, gradient, moment, rounding});
          if (parameter != DType::bf16) { continue; }
          all.push_back({parameter, gradient, moment, rounding, Kept::remainder});
        }
      }
    }
  }
  return all;
}

std::string text_of(const DTypes& d) {
  return std::string{to_string(d.parameter)} + " gradient " + std::string{to_string(d.gradient)} +
         " moments " + std::string{to_string(d.moment)} + " " + std::string{to_string(d.rounding)} +
         (d.masters == Kept::remainder ? " remainders" : "");
}

struct Rule {
  const char* name;
  int moments;
  std::function<void(const UpdateRun&, const StepScalars*, Stream)> reference;
  std::function<void(const UpdateRun&, const StepScalars*, Stream)> cpu;
};

template <class Hyper>
Rule rule(const char* name, int moments, Hyper hyper, auto* reference, auto* cpu) {
  return {name, moments,
          [=](const UpdateRun& run, const StepScalars* s, Stream stream) {
            reference(run, hyper, s, stream);
          },
          [=](const UpdateRun& run, const StepScalars* s, Stream stream) {
            cpu(run, hyper, s, stream);
          }};
}

const Rule kRules[] = {
    rule("adamw", 2, AdamW{}, &reference::adamw, &cpu::adamw),
    rule("adam", 2, Adam{.weight_decay = 0.1F}, &reference::adam, &cpu::adam),
    rule("lion", 1, Lion{.lr = 0.01F, .weight_decay = 0.1F}, &reference::lion, &cpu::lion),
    rule("momentum", 1, SGD{.weight_decay = 0.1F}, &reference::sgd, &cpu::sgd),
    rule("sgd", 0, SGD{.momentum = 0.0F}, &reference::sgd, &cpu::sgd),
};

Floats positive(Floats values) {
  for (float& value : values) { value = std::abs(value); }
  return values;
}

/// A state in which element i of the arrays is element 1000 + i of parameter 5.
struct State {
  State(std::int64_t elems_, const DTypes& dtypes_, int moments_)
      : elems{elems_},
        dtypes{dtypes_},
        moments{moments_},
        master{random_floats(elems, 1), DType::fp32},
        parameter{random_floats(elems, 1), dtypes.parameter, MasterPart::parameter},
        remainder{random_floats(elems, 1), DType::bf16, MasterPart::remainder},
        gradient{random_floats(elems, 2), dtypes.gradient},
        first{random_floats(elems, 3, 0.1F), dtypes.moment},
        second{positive(random_floats(elems, 4, 0.1F)), dtypes.moment} {}

  UpdateRun run(std::int64_t from, std::int64_t count) {
    const bool whole = dtypes.masters == Kept::whole;
    const UpdateRun all{
        .master = whole ? master.values().as<float>() : nullptr,
        .parameter = dtypes.parameter == DType::fp32 ? Values{} : parameter.values(),
        .remainder = whole ? nullptr : remainder.values().as<std::uint16_t>(),
        .gradient = gradient.values(),
        .first = moments > 0 ? first.values() : Values{},
        .second = moments > 1 ? second.values() : Values{},
        .elems = elems,
        .rounding = dtypes.rounding,
        .seed = 42,
        .parameter_id = 5,
        .first_in_parameter = 1000};
    return all.slice(from, count);
  }
  UpdateRun all() { return run(0, elems); }
  friend bool operator==(const State& a, const State& b) {
    return a.master == b.master && a.parameter == b.parameter && a.remainder == b.remainder &&
           a.gradient == b.gradient && a.first == b.first && a.second == b.second;
  }

  std::int64_t elems;
  DTypes dtypes;
  int moments;
  Array master, parameter, remainder, gradient, first, second;
};

StepScalars at_update(std::int64_t t) {
  StepScalars scalars;
  scalars.updates = t;
  scalars.gradient_factor = 0.37F;
  return scalars;
}

using UpdateTest = KernelTest;

TEST_F(UpdateTest, EveryRuleMatchesItsReferenceToTheBitInEveryDType) {
  const StepScalars scalars = at_update(7);
  for (const Rule& rule : kRules) {
    for (const DTypes& dtypes : all_dtypes()) {
      SCOPED_TRACE(std::string{rule.name} + " " + text_of(dtypes));
      for (const std::int64_t elems : {0, 1, 31, 257, 1500}) {
        State expected{elems, dtypes, rule.moments};
        State actual{elems, dtypes, rule.moments};
        rule.reference(expected.all(), &scalars, Stream{});
        rule.cpu(actual.all(), &scalars, stream());
        ASSERT_EQ(expected, actual) << elems;
      }
    }
  }
}

// The property ZeRO stands on, for stochastic rounding too: it follows the element, not the shard.
TEST_F(UpdateTest, NoCutOfATensorChangesABit) {
  const StepScalars scalars = at_update(3);
  for (const Rule& rule : kRules) {
    for (const DTypes& dtypes : all_dtypes()) {
      SCOPED_TRACE(std::string{rule.name} + " " + text_of(dtypes));
      State whole{1700, dtypes, rule.moments};
      rule.cpu(whole.all(), &scalars, stream());
      State sharded{1700, dtypes, rule.moments};
      const auto cuts = random_cuts(1700, 7, 1);
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        rule.cpu(sharded.run(cuts[i], cuts[i + 1] - cuts[i]), &scalars, stream());
      }
      ASSERT_EQ(whole, sharded);
    }
  }
}

TEST_F(UpdateTest, NoNumberOfThreadsChangesABit) {
  const std::unique_ptr<Device> three = make_cpu_device({.threads = 3});
  const OwnedStream threads = three->make_compute_stream();
  const StepScalars scalars = at_update(3);
  const DTypes dtypes{DType::bf16, DType::bf16, DType::bf16, Rounding::stochastic};
  for (const Rule& rule : kRules) {
    State one{30'001, dtypes, rule.moments};
    rule.cpu(one.all(), &scalars, stream());
    State several{30'001, dtypes, rule.moments};
    rule.cpu(several.all(), &scalars, threads.get());
    EXPECT_EQ(one, several) << rule.name;
  }
}

TEST_F(UpdateTest, ARefusedStepLeavesEverythingUntouched) {
  StepScalars scalars = at_update(4);
  scalars.apply = 0;
  for (const Rule& rule : kRules) {
    for (const DTypes& dtypes : all_dtypes()) {
      const State before{600, dtypes, rule.moments};
      State after = before;
      rule.cpu(after.all(), &scalars, stream());
      rule.reference(after.all(), &scalars, Stream{});
      ASSERT_EQ(before, after) << rule.name << " " << text_of(dtypes);
    }
  }
}

TEST_F(UpdateTest, TheCopyIsTheRoundedMaster) {
  const StepScalars scalars = at_update(2);
  for (const Rule& rule : kRules) {
    for (const DType low : {DType::bf16, DType::fp16}) {
      State state{900, {.parameter = low}, rule.moments};
      rule.cpu(state.all(), &scalars, stream());
      Floats master(900);
      std::memcpy(master.data(), state.master.data(), 900 * sizeof(float));
      EXPECT_EQ(state.parameter, (Array{master, low, MasterPart::parameter}))
          << rule.name << " " << to_string(low);
    }
  }
}

// What remainders are for: as whole masters, and half of their bytes.
TEST_F(UpdateTest, RemaindersTrainAsWholeMasters) {
  for (const Rule& rule : kRules) {
    for (const DType gradient : {DType::fp32, DType::bf16}) {
      for (const DType moment : {DType::fp32, DType::bf16}) {
        DTypes dtypes{.parameter = DType::bf16, .gradient = gradient, .moment = moment};
        State whole{1500, dtypes, rule.moments};
        dtypes.masters = Kept::remainder;
        State halves{1500, dtypes, rule.moments};
        const Array before = halves.parameter;
        for (std::int64_t update = 1; update <= 20; ++update) {
          const StepScalars scalars = at_update(update);
          rule.cpu(whole.all(), &scalars, stream());
          rule.cpu(halves.all(), &scalars, stream());
        }
        EXPECT_FALSE(halves.parameter == before) << "nothing was trained";
        Array joined{filled(1500, 0.0F), DType::fp32};
        join_masters(joined.values().as<float>(), halves.parameter.values().as<bfloat16>(),
                     halves.remainder.values().as<std::uint16_t>(), 1500);
        EXPECT_EQ(joined, whole.master) << rule.name << " " << text_of(dtypes);
        EXPECT_EQ(halves.parameter, whole.parameter) << rule.name;
        EXPECT_TRUE(halves.first == whole.first && halves.second == whole.second) << rule.name;
      }
    }
  }
}

TEST_F(UpdateTest, RoundingWeightsAloneWritesTheCopyAndNothingElse) {
  StepScalars scalars = at_update(2);
  for (const DTypes& dtypes : all_dtypes()) {
    if (dtypes.masters == Kept::remainder) { continue; }  // there is nothing to round
    State before{900, dtypes, 2};
    before.parameter = Array{filled(900, 7.0F), dtypes.parameter};
    State expected = before;
    State actual = before;
    reference::round_weights(expected.all(), &scalars, Stream{});
    cpu_.round_weights(actual.all(), &scalars, stream());
    EXPECT_EQ(expected, actual) << text_of(dtypes);
    EXPECT_EQ(actual.parameter == before.parameter, dtypes.parameter == DType::fp32);
    actual.parameter = before.parameter;
    EXPECT_EQ(actual, before);
    scalars.apply = 0;
    cpu_.round_weights(actual.all(), &scalars, stream());
    EXPECT_EQ(actual, before);
    scalars.apply = 1;
  }
}

// The update itself is done in fp32: what gradients of 16 bits hold, and nothing less.
TEST_F(UpdateTest, ASixteenBitGradientCountsAsItsValueInFp32) {
  const StepScalars scalars = at_update(2);
  for (const Rule& rule : kRules) {
    State low{900, {.gradient = DType::bf16}, rule.moments};
    State wide{900, {}, rule.moments};
    cpu_.cast({wide.gradient.data(), 900, DType::fp32}, {low.gradient.data(), 900, DType::bf16},
              stream());
    rule.cpu(low.all(), &scalars, stream());
    rule.cpu(wide.all(), &scalars, stream());
    EXPECT_EQ(low.master, wide.master) << rule.name;
  }
}

}  // namespace
}  // namespace tessera::kernels
