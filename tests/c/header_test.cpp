// Every argument of every function of tessera/c.h, and every member of its structs, is made wrong
// in turn: null, out of range, too large to exist. Each is refused by name and writes no result.
// The header is parsed, so a new function, struct or type of argument fails here until it has a
// row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c/c_header.hpp"
#include "c/c_support.hpp"
#include "support/places.hpp"
#include "support/temporary_folder.hpp"

namespace tessera::c_test::header_test {
namespace {

using ::testing::HasSubstr;

const CHeader& header() {
  static const CHeader read = CHeader::read(std::string{test::kSourceDir} + "/include/tessera/c.h");
  return read;
}

/// The bits of an argument of any type.
using Bits = std::uint64_t;

template <class T>
Bits bits_of(T value) {
  if constexpr (std::is_null_pointer_v<T>) {
    return 0;
  } else if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<std::uintptr_t>(value);
  } else if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<std::uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(value);
  } else {
    return static_cast<Bits>(value);
  }
}

template <class T>
T as(Bits bits) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(bits);  // NOLINT(performance-no-int-to-ptr): bits of a pointer
  } else if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(bits);
  } else {
    return static_cast<T>(bits);
  }
}

/// All that functions write to.
struct Results {
  tessera_model* model;
  tessera_scope* scope;
  tessera_evaluation* evaluation;
  tessera_registration* registration;
  DLManagedTensor* tensor;
  const void* data;
  void* address;
  const float* scale;
  tessera_unit unit;
  double number;
  std::int64_t wide;
  std::int32_t word;
  std::int32_t other_word;
  char path[4096];
  float values[8];
  tessera_memory_report memory;
  tessera_step_report step;
  tessera_world_options world_options;
  tessera_model_options model_options;
  tessera_unit_options unit_options;
  tessera_optimizer_options optimizer_options;
  tessera_save_options save_options;
  tessera_load_options load_options;
  tessera_plan_options plan_options;
};

tessera_status nothing(tessera_world* /*world*/, void* /*user*/) {
  return TESSERA_OK;
}
tessera_status fill_zeros(const tessera_parameter_info* /*parameter*/, std::int64_t /*first*/,
                          std::int64_t count, float* out, void* /*user*/) {
  std::fill_n(out, count, 0.0F);
  return TESSERA_OK;
}
tessera_status take(const tessera_parameter_info* /*parameter*/, const float* /*values*/,
                    std::int64_t /*count*/, void* /*user*/) {
  return TESSERA_OK;
}
std::int32_t choose_all(const tessera_parameter_info* /*parameter*/, void* /*user*/) {
  return 1;
}
/// A rank with valid arguments for every function. A correct call could succeed; none is made.
struct Place {
  tessera_world* world;
  Line line;
  tessera_model* declared = nullptr;      // without an optimizer
  tessera_model* materialized = nullptr;  // the same, with memory
  tessera_model* evaluated = nullptr;     // the same, in an evaluation
  tessera_unit other_unit = 0;
  tessera_scope* forward = nullptr;   // of `evaluated`
  tessera_scope* backward = nullptr;  // of `line`
  tessera_scope* closed = nullptr;
  tessera_evaluation* evaluation = nullptr;
  tessera_registration* registration = nullptr;
  test::TemporaryFolder folder;
  std::string path = (folder.path() / "run").string();
  tessera_parameter_spec spec = vector_of("w", 5);
  float output[4] = {};
  Results results;
  Results before;

  explicit Place(tessera_world* rank) : world{rank}, line{rank} {
    std::memset(&results, 0, sizeof results);
    EXPECT_DONE(tessera_model_create(world, nullptr, &declared));
    EXPECT_DONE(tessera_add_unit(declared, "other", &spec, 1, nullptr, &other_unit));
    tessera_unit unit = 0;
    for (tessera_model** const model : {&materialized, &evaluated}) {
      EXPECT_DONE(tessera_model_create(world, nullptr, model));
      EXPECT_DONE(tessera_add_unit(*model, "other", &spec, 1, nullptr, &unit));
      EXPECT_DONE(tessera_materialize_constant(*model, 1.0F));
    }
    EXPECT_DONE(tessera_evaluate(evaluated, &evaluation));
    EXPECT_DONE(tessera_forward(evaluated, unit, &forward));
    EXPECT_DONE(tessera_register_memory(world, TESSERA_ACTIVATIONS, 8, "mine", &registration));
    EXPECT_DONE(line.step());
    EXPECT_DONE(tessera_save(line.model, path.c_str(), nullptr));
    EXPECT_DONE(tessera_forward(line.model, line.unit, &closed));
    EXPECT_DONE(tessera_close(closed));
    EXPECT_DONE(tessera_backward(line.model, line.unit, &backward));
    results.memory.size = sizeof results.memory;
    results.step.size = sizeof results.step;
    before = results;
  }
  void end() const {
    EXPECT_DONE(tessera_close(forward));
    EXPECT_DONE(tessera_end_evaluation(evaluation));
    EXPECT_DONE(tessera_close(backward));
    EXPECT_DONE(tessera_step(line.model, nullptr));
    EXPECT_DONE(line.step()) << "the model goes on";
  }
  [[nodiscard]] std::string checkpoint() const { return path + "/step-00000001"; }
};

/// A function, with valid arguments for it.
struct Function {
  std::string name;
  std::size_t parameters;
  std::function<tessera_status(const std::vector<Bits>&)> call;
  std::function<std::vector<Bits>(Place&)> valid;
};

template <class... A, class Valid>
Function function(const char* name, tessera_status (*f)(A...), const Valid& valid) {
  const auto call = [f](const std::vector<Bits>& bits) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return f(as<A>(bits[I])...);
    }(std::index_sequence_for<A...>{});
  };
  const auto all = [valid](Place& at) {
    return std::apply([](auto... values) { return std::vector<Bits>{bits_of(values)...}; },
                      valid(at));
  };
  return {name, sizeof...(A), call, all};
}

template <class... T>
std::tuple<T...> with(T... values) {
  return {values...};
}

std::vector<Function> functions() {
  const auto world = [](Place& at) { return with(at.world); };
  const auto model = [](Place& at) { return with(at.line.model); };
  const auto open = [](Place& at) { return with(at.line.model, at.line.unit, &at.results.scope); };
  const auto open_of = [](Place& at) {
    return with(at.line.model, at.line.unit, 0, &at.results.scope);
  };
  const auto change = [](Place& at) { return with(at.line.model, at.line.unit, "w"); };
  const auto init = [](auto member) {
    return [member](Place& at) { return with(&(at.results.*member), sizeof(at.results.*member)); };
  };
  const auto report = [](Place& at) { return with(at.line.model, &at.results.step); };
  return {
      function("tessera_fail", &tessera_fail, [](Place&) { return with(TESSERA_ERROR, "reason"); }),
      function("tessera_strategy_from", &tessera_strategy_from,
               [](Place& at) { return with("zero3", &at.results.word); }),
      function("tessera_world_options_init", &tessera_world_options_init,
               init(&Results::world_options)),
      function("tessera_launched_ranks", &tessera_launched_ranks,
               [](Place& at) { return with(TESSERA_CPU, &at.results.word); }),
      function("tessera_run_ranks", &tessera_run_ranks,
               [](Place&) { return with(1, &nothing, nullptr, nullptr); }),
      function("tessera_run", &tessera_run,
               [](Place&) { return with(&nothing, nullptr, nullptr); }),
      function("tessera_world_place", &tessera_world_place,
               [](Place& at) { return with(at.world, &at.results.word, &at.results.other_word); }),
      function("tessera_world_computes", &tessera_world_computes,
               [](Place& at) { return with(at.world, &at.results.word); }),
      function("tessera_world_stream", &tessera_world_stream,
               [](Place& at) { return with(at.world, &at.results.address); }),
      function("tessera_barrier", &tessera_barrier, world),
      function("tessera_sum", &tessera_sum,
               [](Place& at) { return with(at.world, 1.0, &at.results.number); }),
      function("tessera_abort", &tessera_abort, [](Place& at) { return with(at.world, "reason"); }),
      function("tessera_memory", &tessera_memory,
               [](Place& at) { return with(at.world, &at.results.memory); }),
      function("tessera_register_memory", &tessera_register_memory,
               [](Place& at) {
                 return with(at.world, TESSERA_ACTIVATIONS, 8, "mine", &at.results.registration);
               }),
      function("tessera_unregister_memory", &tessera_unregister_memory,
               [](Place& at) { return with(at.registration); }),
      function("tessera_allocate", &tessera_allocate,
               [](Place& at) {
                 return with(at.world, TESSERA_WORKSPACE, 8, "mine", &at.results.address);
               }),
      function("tessera_free", &tessera_free,
               [](Place& at) { return with(at.world, static_cast<void*>(nullptr)); }),
      function("tessera_plan_options_init", &tessera_plan_options_init,
               init(&Results::plan_options)),
      function("tessera_plan", &tessera_plan,
               [](Place& at) { return with(nullptr, &nothing, nullptr, &at.results.memory); }),
      function("tessera_model_options_init", &tessera_model_options_init,
               init(&Results::model_options)),
      function("tessera_unit_options_init", &tessera_unit_options_init,
               init(&Results::unit_options)),
      function("tessera_model_create", &tessera_model_create,
               [](Place& at) { return with(at.world, nullptr, &at.results.model); }),
      function("tessera_model_destroy", &tessera_model_destroy, model),
      function("tessera_add_unit", &tessera_add_unit,
               [](Place& at) {
                 return with(at.declared, "more", &at.spec, 1, nullptr, &at.results.unit);
               }),
      function("tessera_declare_order", &tessera_declare_order,
               [](Place& at) { return with(at.declared, &at.other_unit, 1); }),
      function("tessera_materialize", &tessera_materialize,
               [](Place& at) { return with(at.declared, &fill_zeros, nullptr); }),
      function("tessera_materialize_normal", &tessera_materialize_normal,
               [](Place& at) { return with(at.declared, 1, 0.5F); }),
      function("tessera_materialize_constant", &tessera_materialize_constant,
               [](Place& at) { return with(at.declared, 0.5F); }),
      function("tessera_materialize_from", &tessera_materialize_from,
               [](Place& at) { return with(at.declared, at.path.c_str(), nullptr, nullptr); }),
      function(
          "tessera_fill_normal", &tessera_fill_normal,
          [](Place& at) { return with(1, 2, 3, 5, 0.5F, static_cast<float*>(at.results.values)); }),
      function("tessera_optimizer_options_init", &tessera_optimizer_options_init,
               [](Place& at) {
                 return with(&at.results.optimizer_options, sizeof at.results.optimizer_options,
                             TESSERA_ADAMW);
               }),
      function("tessera_optimize_with", &tessera_optimize_with,
               [](Place& at) { return with(at.materialized, &at.results.optimizer_options); }),
      function("tessera_forward", &tessera_forward, open),
      function("tessera_backward", &tessera_backward, open),
      function("tessera_forward_of", &tessera_forward_of, open_of),
      function("tessera_backward_of", &tessera_backward_of, open_of),
      function("tessera_parameter", &tessera_parameter,
               [](Place& at) { return with(at.forward, "w", TESSERA_FP32, &at.results.data); }),
      function("tessera_gradient", &tessera_gradient,
               [](Place& at) { return with(at.backward, "w", TESSERA_FP32, &at.results.address); }),
      function("tessera_has_gradient", &tessera_has_gradient,
               [](Place& at) { return with(at.backward, "w", &at.results.word); }),
      function("tessera_watch", &tessera_watch,
               [](Place& at) {
                 return with(at.forward, static_cast<const void*>(at.output), 4, TESSERA_FP32);
               }),
      function("tessera_close", &tessera_close, [](Place& at) { return with(at.forward); }),
      function("tessera_parameter_dlpack", &tessera_parameter_dlpack,
               [](Place& at) { return with(at.forward, "w", &at.results.tensor); }),
      function("tessera_gradient_dlpack", &tessera_gradient_dlpack,
               [](Place& at) { return with(at.backward, "w", &at.results.tensor); }),
      function("tessera_evaluate", &tessera_evaluate,
               [](Place& at) { return with(at.line.model, &at.results.evaluation); }),
      function("tessera_end_pass", &tessera_end_pass,
               [](Place& at) { return with(at.evaluation); }),
      function("tessera_end_evaluation", &tessera_end_evaluation,
               [](Place& at) { return with(at.evaluation); }),
      function("tessera_step", &tessera_step,
               [](Place& at) { return with(at.line.model, nullptr); }),
      function("tessera_step_counted", &tessera_step_counted,
               [](Place& at) { return with(at.line.model, nullptr, nullptr, 8.0); }),
      function("tessera_loss_scale", &tessera_loss_scale,
               [](Place& at) { return with(at.line.model, &at.results.scale); }),
      function("tessera_set_learning_rate", &tessera_set_learning_rate,
               [](Place& at) { return with(at.line.model, 0.5F); }),
      function("tessera_freeze", &tessera_freeze, change),
      function("tessera_unfreeze", &tessera_unfreeze, change),
      function("tessera_report", &tessera_report, report),
      function("tessera_previous_report", &tessera_previous_report, report),
      function("tessera_steps", &tessera_steps,
               [](Place& at) { return with(at.line.model, &at.results.wide); }),
      function("tessera_export_state", &tessera_export_state,
               [](Place& at) { return with(at.line.model, TESSERA_PARAMETERS, &take, nullptr); }),
      function("tessera_save_options_init", &tessera_save_options_init,
               init(&Results::save_options)),
      function("tessera_save", &tessera_save,
               [](Place& at) { return with(at.line.model, at.path.c_str(), nullptr); }),
      function("tessera_newest_checkpoint", &tessera_newest_checkpoint,
               [](Place& at) {
                 return with(at.path.c_str(), static_cast<char*>(at.results.path),
                             sizeof at.results.path, &at.results.wide);
               }),
      function("tessera_load_options_init", &tessera_load_options_init,
               init(&Results::load_options)),
      function("tessera_load", &tessera_load,
               [](Place& at) { return with(at.line.model, at.path.c_str(), nullptr); }),
      function("tessera_save_weights", &tessera_save_weights,
               [](Place& at) { return with(at.line.model, at.path.c_str(), nullptr, nullptr); }),
  };
}

/// A wrong value, and words that its refusal has one of.
struct Wrong {
  Bits bits;
  std::vector<std::string> words;
};

template <class T>
std::vector<Wrong> wrong(std::vector<std::string> words, std::initializer_list<T> values) {
  std::vector<Wrong> all;
  for (const T value : values) { all.push_back({bits_of(value), words}); }
  return all;
}

constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLeastWide = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMostWide = std::numeric_limits<std::int64_t>::max();

/// Types of handles, and the word for each.
const std::map<std::string, std::string>& handles() {
  static const std::map<std::string, std::string> all = {{"tessera_world*", "world"},
                                                         {"tessera_model*", "model"},
                                                         {"tessera_scope*", "scope"},
                                                         {"tessera_evaluation*", "evaluation"},
                                                         {"tessera_registration*", "registration"}};
  return all;
}

/// Arguments that may have any value: "function.parameter".
const std::set<std::string>& any_value() {
  static const std::set<std::string> all = {
      "tessera_fail.status",  // an unknown one becomes TESSERA_ERROR
      "tessera_sum.value",
      "tessera_materialize_normal.seed",
      "tessera_materialize_constant.value",
      "tessera_fill_normal.seed",
      "tessera_fill_normal.id",
  };
  return all;
}

/// Wrong numbers by type and name.
std::vector<Wrong> wrong_numbers(const DeclaredValue& argument, const Place& at) {
  const std::string& type = argument.type;
  const std::string& name = argument.name;
  if (type == "tessera_unit") { return wrong<Bits>({"unit"}, {0, ~Bits{0}, at.other_unit ^ 1U}); }
  if (type == "tessera_dtype") { return wrong({"dtype"}, {kLeast, -1, 0, 5, kMost}); }
  if (type == "tessera_device") { return wrong({"device"}, {kLeast, -1, 2, kMost}); }
  if (type == "tessera_category") { return wrong({"category", "`what`"}, {kLeast, -1, 10, kMost}); }
  if (type == "int32_t" && name == "ranks") { return wrong({"ranks"}, {kLeast, -1, 0, kMost}); }
  if (type == "int32_t" && name == "rule") { return wrong({"rule"}, {kLeast, -1, 4, kMost}); }
  if (type == "int32_t" && name == "micro_batch") {
    return wrong({"micro-batch"}, {kLeast, -1, kMost});
  }
  if (type == "int64_t" && name == "first") {
    return wrong({"first"}, {kLeastWide, std::int64_t{-1}, kMostWide});
  }
  if (type == "int64_t" && (name == "count" || name == "elems")) {
    return wrong({"count", "elems", "elements"}, {kLeastWide, std::int64_t{-1}, kMostWide});
  }
  if (type == "size_t" && name == "count") { return wrong<Bits>({"elements"}, {~Bits{0}}); }
  if (type == "size_t" && name == "size") { return wrong<Bits>({"size", "room"}, {0, 1}); }
  if (type == "uint64_t" && name == "bytes") { return wrong<Bits>({"mine"}, {~Bits{0}}); }
  if (type == "double" && name == "of") {
    return wrong({"`of`"}, {std::numeric_limits<double>::quiet_NaN(), -1.0, 0.0,
                            std::numeric_limits<double>::infinity()});
  }
  if (type == "float") {
    return wrong({name}, {std::numeric_limits<float>::quiet_NaN(), -1.0F,
                          std::numeric_limits<float>::infinity()});
  }
  return {};
}

std::vector<Wrong> wrong_values(const DeclaredFunction& of, const DeclaredValue& argument,
                                const Place& at) {
  if (any_value().contains(of.name + "." + argument.name)) { return {}; }
  const bool is_address = argument.type.ends_with('*') || argument.type.ends_with("_fn");
  if (const auto handle = handles().find(argument.type); handle != handles().end()) {
    const void* const another =
        handle->second == "scope" ? static_cast<const void*>(at.world) : at.closed;
    return wrong<const void*>({handle->second}, {nullptr, another, at.closed, &at, "text"});
  }
  if (!is_address) { return wrong_numbers(argument, at); }
  const bool follows = argument.name != "user";
  if (!follows || of.may_be_null(argument.name)) { return {}; }
  // "the callback", "the initialiser": words of a function; a struct's name; a parameter's.
  return wrong<const void*>({argument.name + " is NULL", "callback is NULL", "initialiser is NULL",
                             "_options is NULL", "_report is NULL"},
                            {nullptr});
}

class CHeaderTest : public ::testing::Test {
 protected:
  static void in_a_rank(const std::function<void(Place&)>& body) {
    EXPECT_DONE(run_ranks(1, [&](tessera_world* world) {
      Place at{world};
      body(at);
      at.end();
      return TESSERA_OK;
    }));
  }
};

const DeclaredFunction& declared(const std::string& name) {
  for (const DeclaredFunction& one : header().functions) {
    if (one.name == name) { return one; }
  }
  throw std::runtime_error{name + " has a row here, but tessera/c.h does not declare it"};
}

void expect_refused(Place& at, tessera_status status, const Wrong& value, const std::string& what) {
  const std::string text = tessera_last_error();
  EXPECT_NE(status, TESSERA_OK) << what << " is accepted";
  EXPECT_NE(status, TESSERA_ERROR) << what << ": " << text;
  bool named = false;
  for (const std::string& word : value.words) { named = named || text.find(word) != text.npos; }
  EXPECT_TRUE(named) << what << ": the text is: " << text;
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bytes between members stay too
  EXPECT_EQ(std::memcmp(&at.results, &at.before, sizeof at.results), 0)
      << what << ": a result was written";
  at.results = at.before;
}

TEST_F(CHeaderTest, EveryFunctionHasARow) {
  const std::set<std::string> of_texts = {"tessera_last_error", "tessera_status_name",
                                          "tessera_version", "tessera_category_name"};
  std::set<std::string> rows;
  for (const Function& one : functions()) { rows.insert(one.name); }
  for (const DeclaredFunction& one : header().functions) {
    const bool is_known =
        one.result == "const char*" ? of_texts.contains(one.name) : rows.contains(one.name);
    EXPECT_TRUE(is_known) << one.name << " is new: give it a row with valid arguments";
  }
  for (const std::int32_t number : {kLeast, -1, 10, kMost}) {
    EXPECT_EQ(tessera_category_name(number), nullptr);
    EXPECT_STREQ(tessera_status_name(number), "unknown status");
  }
}

TEST_F(CHeaderTest, EveryArgumentThatIsNullOrOutOfRangeIsRefusedByName) {
  in_a_rank([](Place& at) {
    for (const Function& one : functions()) {
      const DeclaredFunction& of = declared(one.name);
      ASSERT_EQ(of.parameters.size(), one.parameters) << one.name;
      for (std::size_t i = 0; i < one.parameters; ++i) {
        const DeclaredValue& argument = of.parameters[i];
        const std::string what = one.name + "." + argument.name;
        const std::vector<Wrong> values = wrong_values(of, argument, at);
        const bool is_free =
            any_value().contains(what) || argument.name == "user" || of.may_be_null(argument.name);
        EXPECT_EQ(values.empty(), is_free)
            << what << ", a " << argument.type << ": give it wrong values here";
        for (const Wrong& value : values) {
          std::vector<Bits> arguments = one.valid(at);
          arguments[i] = value.bits;
          expect_refused(at, one.call(arguments), value,
                         what + " = " + std::to_string(static_cast<std::int64_t>(value.bits)));
        }
      }
    }
  });
}

// ------------------------------------------------------------------------------------ structs

/// A struct that callers fill, with valid contents, and a call that reads it.
struct Filled {
  std::string name;
  std::size_t bytes;
  std::function<std::vector<std::byte>(Place&)> valid;
  std::function<tessera_status(Place&, void*)> call;
};

template <class Struct>
Filled filled(const char* name, std::function<Struct(Place&)> valid,
              std::function<tessera_status(Place&, Struct*)> call) {
  const auto bytes = [valid](Place& at) {
    const Struct contents = valid(at);
    std::vector<std::byte> copy(sizeof(Struct));
    std::memcpy(copy.data(), &contents, sizeof contents);
    return copy;
  };
  return {name, sizeof(Struct), bytes,
          [call](Place& at, void* data) { return call(at, static_cast<Struct*>(data)); }};
}

template <class Struct, class Init>
Struct made(Init init) {
  Struct options;
  EXPECT_DONE(init(&options, sizeof options));
  return options;
}

tessera_optimizer_options sgd() {
  tessera_optimizer_options options;
  EXPECT_DONE(tessera_optimizer_options_init(&options, sizeof options, TESSERA_SGD));
  return options;
}

std::vector<Filled> structs() {
  static constexpr tessera_value kValue = {"name", "text"};
  static constexpr tessera_parameter_group kGroup = {.name = "all",
                                                     .chooses = &choose_all,
                                                     .user = nullptr,
                                                     .lr_scale = 1.0F,
                                                     .has_weight_decay = 1,
                                                     .weight_decay = 0.5F,
                                                     .reserved_flag = 0,
                                                     .reserved = {}};
  return {
      filled<tessera_world_options>(
          "tessera_world_options",
          [](Place&) { return made<tessera_world_options>(&tessera_world_options_init); },
          [](Place&, tessera_world_options* options) {
            return tessera_run_ranks(1, &nothing, nullptr, options);
          }),
      filled<tessera_plan_options>(
          "tessera_plan_options",
          [](Place&) { return made<tessera_plan_options>(&tessera_plan_options_init); },
          [](Place& at, tessera_plan_options* options) {
            return tessera_plan(options, &nothing, nullptr, &at.results.memory);
          }),
      filled<tessera_model_options>(
          "tessera_model_options",
          [](Place&) {
            auto options = made<tessera_model_options>(&tessera_model_options_init);
            options.compute = TESSERA_FP16;  // so that the loss scale is read
            options.loss_scaling = TESSERA_SCALE_DYNAMIC;
            return options;
          },
          [](Place& at, tessera_model_options* options) {
            return tessera_model_create(at.world, options, &at.results.model);
          }),
      filled<tessera_unit_options>(
          "tessera_unit_options",
          [](Place&) { return made<tessera_unit_options>(&tessera_unit_options_init); },
          [](Place& at, tessera_unit_options* options) {
            return tessera_add_unit(at.declared, "more", &at.spec, 1, options, &at.results.unit);
          }),
      filled<tessera_parameter_spec>(
          "tessera_parameter_spec", [](Place&) { return vector_of("x", 3); },
          [](Place& at, tessera_parameter_spec* spec) {
            return tessera_add_unit(at.declared, "more", spec, 1, nullptr, &at.results.unit);
          }),
      filled<tessera_optimizer_options>(
          "tessera_optimizer_options",
          [](Place&) {
            tessera_optimizer_options options;
            EXPECT_DONE(tessera_optimizer_options_init(&options, sizeof options, TESSERA_ADAMW));
            options.groups = &kGroup;
            options.group_count = 1;
            return options;
          },
          [](Place& at, tessera_optimizer_options* options) {
            return tessera_optimize_with(at.materialized, options);
          }),
      filled<tessera_parameter_group>(
          "tessera_parameter_group", [](Place&) { return kGroup; },
          [](Place& at, tessera_parameter_group* group) {
            tessera_optimizer_options options = sgd();
            options.groups = group;
            options.group_count = 1;
            return tessera_optimize_with(at.materialized, &options);
          }),
      filled<tessera_save_options>(
          "tessera_save_options",
          [](Place&) {
            auto options = made<tessera_save_options>(&tessera_save_options_init);
            options.values = &kValue;
            options.value_count = 1;
            return options;
          },
          [](Place& at, tessera_save_options* options) {
            return tessera_save(at.line.model, at.path.c_str(), options);
          }),
      filled<tessera_value>(
          "tessera_value", [](Place&) { return kValue; },
          [](Place& at, tessera_value* value) {
            auto options = made<tessera_save_options>(&tessera_save_options_init);
            options.values = value;
            options.value_count = 1;
            return tessera_save(at.line.model, at.path.c_str(), &options);
          }),
      filled<tessera_load_options>(
          "tessera_load_options",
          [](Place&) { return made<tessera_load_options>(&tessera_load_options_init); },
          [](Place& at, tessera_load_options* options) {
            return tessera_load(at.line.model, at.checkpoint().c_str(), options);
          }),
      filled<tessera_memory_report>(
          "tessera_memory_report", [](Place& at) { return at.results.memory; },
          [](Place& at, tessera_memory_report* report) {
            return tessera_memory(at.world, report);
          }),
      filled<tessera_step_report>(
          "tessera_step_report", [](Place& at) { return at.results.step; },
          [](Place& at, tessera_step_report* report) {
            return tessera_report(at.line.model, report);
          }),
  };
}

/// Members that may have any value, or that the library writes: "struct.member", or "struct" for
/// all but the size.
const std::set<std::string>& any_member() {
  static const std::set<std::string> all = {
      "tessera_memory_report",
      "tessera_step_report",
      "tessera_world_options.budget_bytes",
      "tessera_world_options.attention_workspace_bytes",
      "tessera_world_options.products",
      "tessera_optimizer_options.rounding_seed",
      // SGD's; read with that rule only
      "tessera_optimizer_options.momentum",
      // no effect without a CUDA device
      "tessera_model_options.bucket_bytes",
      "tessera_model_options.first_bucket_bytes",
      "tessera_save_options.shard_bytes",
  };
  return all;
}

/// The bytes of one element of a member.
std::size_t size_of_member(const DeclaredValue& member) {
  static const std::map<std::string, std::size_t> sizes = {
      {"int32_t", 4},      {"uint32_t", 4},      {"float", 4},           {"int64_t", 8},
      {"uint64_t", 8},     {"double", 8},        {"size_t", 8},          {"tessera_device", 4},
      {"tessera_comm", 4}, {"tessera_dtype", 4}, {"tessera_strategy", 4}};
  const auto known = sizes.find(member.type);
  if (known != sizes.end()) { return known->second; }
  if (member.type.ends_with('*') || member.type.ends_with("_fn")) { return sizeof(void*); }
  throw std::runtime_error{"a member of type " + member.type + ": say here how large it is"};
}

/// A byte for each member's first: C's natural alignment.
std::vector<std::size_t> offsets_of(const DeclaredStruct& of, std::size_t& bytes) {
  std::vector<std::size_t> offsets;
  std::size_t at = 0;
  std::size_t widest = 1;
  for (const DeclaredValue& member : of.members) {
    const std::size_t size = size_of_member(member);
    at = (at + size - 1) / size * size;
    offsets.push_back(at);
    at += size * member.count;
    widest = std::max(widest, size);
  }
  bytes = (at + widest - 1) / widest * widest;
  return offsets;
}

std::vector<Wrong> wrong_members(const DeclaredValue& member, std::size_t bytes) {
  const std::string& type = member.type;
  const bool is_address = type.ends_with('*') || type.ends_with("_fn");
  const std::vector<std::string> words = {member.name};
  if (member.name == "size") { return wrong<Bits>({"size"}, {0, 1, bytes + 1, ~Bits{0}}); }
  if (member.name.starts_with("reserved")) { return wrong<Bits>({"reserved"}, {1}); }
  if (member.name == "user" || member.name.ends_with("_user")) { return {}; }
  if (is_address) {
    const bool may = member.comment.find("NULL") != std::string::npos &&
                     member.comment.find("not NULL") == std::string::npos;
    const bool counted = member.comment.find("_count ") != std::string::npos;
    if (may && !counted) { return {}; }
    return wrong<const void*>({member.name}, {nullptr});
  }
  if (member.name.ends_with("_count")) {
    return wrong<Bits>({member.name.substr(0, member.name.size() - 6)}, {~Bits{0}});
  }
  if (type == "float") { return wrong(words, {std::numeric_limits<float>::quiet_NaN()}); }
  if (type == "int64_t") { return wrong(words, {kLeastWide}); }
  if (type == "uint64_t") { return wrong<Bits>(words, {~Bits{0}}); }
  if (member.name == "accumulate") { return wrong(words, {kLeast}); }  // as many as one likes
  return wrong(words, {kLeast, kMost});
}

/// Names in errors that differ from the member's.
std::vector<std::string> words_of(const std::string& what, const std::vector<std::string>& words) {
  static const std::map<std::string, std::string> others = {
      {"tessera_world_options.deadline_ms", "deadline"},
      {"tessera_world_options.nccl_min_ctas", "nccl.min_ctas"},
      {"tessera_world_options.nccl_max_ctas", "nccl.max_ctas"},
      {"tessera_model_options.loss_scale_initial", "loss_scaling.initial"},
      {"tessera_model_options.loss_scale_growth", "loss_scaling.growth"},
      {"tessera_model_options.loss_scale_backoff", "loss_scaling.backoff"},
      {"tessera_model_options.loss_scale_minimum", "loss_scaling.minimum"},
      {"tessera_model_options.loss_scale_growth_interval", "loss_scaling.growth_interval"},
      {"tessera_model_options.mesh_replicate", "mesh"},
      {"tessera_model_options.mesh_shard", "mesh"},
      {"tessera_parameter_spec.shape", "-9223372036854775808"},
      {"tessera_optimizer_options.rule", "rule"},
      {"tessera_optimizer_options.groups", "groups"},
      {"tessera_save_options.values", "values"},
  };
  std::vector<std::string> all = words;
  if (const auto other = others.find(what); other != others.end()) { all.push_back(other->second); }
  return all;
}

TEST_F(CHeaderTest, EveryStructHasARow) {
  std::set<std::string> rows = {"tessera_parameter_info"};  // the library's
  for (const Filled& one : structs()) { rows.insert(one.name); }
  for (const DeclaredStruct& one : header().structs) {
    EXPECT_TRUE(rows.contains(one.name)) << one.name << " is new: give it a row";
  }
}

TEST_F(CHeaderTest, EveryMemberThatIsNullOrOutOfRangeIsRefusedByName) {
  in_a_rank([](Place& at) {
    std::map<std::string, const DeclaredStruct*> all;
    for (const DeclaredStruct& one : header().structs) { all[one.name] = &one; }
    for (const Filled& one : structs()) {
      const DeclaredStruct& of = *all.at(one.name);
      std::size_t bytes = 0;
      const std::vector<std::size_t> offsets = offsets_of(of, bytes);
      ASSERT_EQ(bytes, one.bytes) << one.name << " is parsed wrongly";
      for (std::size_t m = 0; m < of.members.size(); ++m) {
        const DeclaredValue& member = of.members[m];
        const std::string what = one.name + "." + member.name;
        const bool is_free = any_member().contains(what) ||
                             (any_member().contains(one.name) && member.name != "size");
        if (is_free) { continue; }
        for (Wrong value : wrong_members(member, one.bytes)) {
          value.words = words_of(what, value.words);
          std::vector<std::byte> contents = one.valid(at);
          std::memcpy(contents.data() + offsets[m], &value.bits, size_of_member(member));
          expect_refused(at, one.call(at, contents.data()), value,
                         what + " = " + std::to_string(static_cast<std::int64_t>(value.bits)));
        }
      }
    }
  });
}

}  // namespace
}  // namespace tessera::c_test::header_test
