#include "engine/model/evaluation_pass.hpp"

namespace tessera::engine {

void EvaluationPass::begin(const UseOrder& training) {
  if (!order().is_known()) { order() = training.evaluation(); }
  order().begin_round();
}

void EvaluationPass::open(std::size_t index) {
  const Use use{UseKind::evaluation, index};
  require_closed(index);
  make_room(index);
  bring(use, trace::Phase::evaluation);
  enter(use, /*micro_batch=*/0);
  begin_span(use);
}

void EvaluationPass::close(std::size_t index) {
  const Use use{UseKind::evaluation, index};
  end_span(use);
  leave(use, /*micro_batch=*/0, /*last=*/false);
}

void EvaluationPass::end_pass() {
  require_scopes_ended("the end of an evaluation pass");
  release_parameters();
  order().end_round();
  order().begin_round();
}

}  // namespace tessera::engine
