#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "tessera/c.h"

namespace tessera::c_test {

using Body = std::function<tessera_status(tessera_world*)>;

inline tessera_status call_body(tessera_world* world, void* user) {
  return (*static_cast<Body*>(user))(world);
}

inline tessera_status run_ranks(int ranks, Body body,
                                const tessera_world_options* options = nullptr) {
  return tessera_run_ranks(ranks, call_body, &body, options);
}

/// Expects a call to succeed; otherwise prints the library's error text.
#define EXPECT_DONE(call) EXPECT_EQ(call, TESSERA_OK) << tessera_last_error()

/// Expects a call to have failed with status `expected` and a text that contains `part`.
inline void expect_failed(tessera_status status, tessera_status expected, const std::string& part) {
  EXPECT_STREQ(tessera_status_name(status), tessera_status_name(expected));
  EXPECT_NE(std::string{tessera_last_error()}.find(part), std::string::npos)
      << "the text is: " << tessera_last_error() << "\nand should have: " << part;
}

constexpr tessera_parameter_spec vector_of(const char* name, std::int64_t elems) {
  tessera_parameter_spec spec = {};
  spec.name = name;
  spec.dims = 1;
  spec.shape[0] = elems;
  return spec;
}

/// A model of one unit "line" with the parameters w [5] and b [1], all ones, ready to be trained by
/// SGD with rate 0.5.
struct Line {
  tessera_model* model = nullptr;
  tessera_unit unit = 0;

  explicit Line(tessera_world* world, tessera_strategy strategy = TESSERA_ZERO3) {
    tessera_model_options options;
    EXPECT_DONE(tessera_model_options_init(&options, sizeof options));
    options.strategy = strategy;
    EXPECT_DONE(tessera_model_create(world, &options, &model));
    const tessera_parameter_spec specs[] = {vector_of("w", 5), vector_of("b", 1)};
    EXPECT_DONE(tessera_add_unit(model, "line", specs, 2, nullptr, &unit));
    EXPECT_DONE(tessera_materialize_constant(model, 1.0F));
    tessera_optimizer_options sgd;
    EXPECT_DONE(tessera_optimizer_options_init(&sgd, sizeof sgd, TESSERA_SGD));
    sgd.lr = 0.5F;
    sgd.momentum = 0.0F;
    EXPECT_DONE(tessera_optimize_with(model, &sgd));
  }

  /// One step with gradients of all ones.
  [[nodiscard]] tessera_status step() const {
    tessera_scope* scope = nullptr;
    TESSERA_TRY(tessera_forward(model, unit, &scope));
    TESSERA_TRY(tessera_close(scope));
    TESSERA_TRY(tessera_backward(model, unit, &scope));
    for (const auto& [name, elems] : {std::pair{"w", 5}, std::pair{"b", 1}}) {
      void* gradient = nullptr;
      TESSERA_TRY(tessera_gradient(scope, name, TESSERA_FP32, &gradient));
      for (int i = 0; i < elems; ++i) { static_cast<float*>(gradient)[i] += 1.0F; }
    }
    TESSERA_TRY(tessera_close(scope));
    return tessera_step(model, nullptr);
  }
};

/// The first element of w, read in an evaluation.
inline float weight_of(tessera_model* model, tessera_unit unit) {
  tessera_scope* scope = nullptr;
  tessera_evaluation* evaluation = nullptr;
  const void* w = nullptr;
  EXPECT_DONE(tessera_evaluate(model, &evaluation));
  EXPECT_DONE(tessera_forward(model, unit, &scope));
  EXPECT_DONE(tessera_parameter(scope, "w", TESSERA_FP32, &w));
  const float value = *static_cast<const float*>(w);
  EXPECT_DONE(tessera_close(scope));
  EXPECT_DONE(tessera_end_pass(evaluation));
  EXPECT_DONE(tessera_end_evaluation(evaluation));
  return value;
}

}  // namespace tessera::c_test
