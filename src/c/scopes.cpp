#include <memory>
#include <string>
#include <utility>

#include "c/objects.hpp"
#include "c/options.hpp"
#include "c/structs.hpp"
#include "tessera/base/dtype.hpp"
#include "tessera/engine/dlpack.hpp"

namespace tessera::c {
namespace {

/// Opens a unit with `open`, which returns the scope, and writes its handle.
template <class Open>
void open_scope(Call call, tessera_model* model, tessera_unit unit, tessera_scope** scope,
                const Open& open) {
  const auto found = find<OpenModel>(call, model);
  call.require(scope, "scope");
  *scope = found->open(unit, open(found->sharded(), found->unit_of(call, unit)));
}

/// The address of a tensor whose elements are requested as `dtype`.
template <class AnyTensor>
auto data_as(Call call, const AnyTensor& tensor, const char* name, tessera_dtype dtype) {
  if (tensor.dtype() != dtype_of(call, "dtype", dtype)) {
    call.refuse(fmt::format("the elements of '{}' are {}, but were requested as {}", name,
                            to_string(tensor.dtype()), to_string(dtype_of(call, "dtype", dtype))));
  }
  return tensor.data();
}

/// What a DLPack view holds: the model's memory, and its entry among the views of its scope.
class ViewLife {
 public:
  ViewLife(std::shared_ptr<OpenModel> model, std::shared_ptr<HeldViews> views, std::string name)
      : model_{std::move(model)}, views_{std::move(views)}, name_{std::move(name)} {
    views_->add(name_);
  }
  ViewLife(const ViewLife&) = delete;
  ViewLife& operator=(const ViewLife&) = delete;
  ~ViewLife() { views_->remove(name_); }

 private:
  std::shared_ptr<OpenModel> model_;
  std::shared_ptr<HeldViews> views_;
  std::string name_;
};

/// The shared model of an open scope.
std::shared_ptr<OpenModel> model_of(Call call, const OpenScope& scope) {
  return find<OpenModel>(call, scope.model->handle());
}

DLManagedTensor* view_of(Call call, const OpenScope& scope, const char* name, const auto& tensor) {
  return to_dlpack(tensor, scope.model->rank().world().device(),
                   std::make_shared<ViewLife>(model_of(call, scope), scope.views, name));
}

}  // namespace
}  // namespace tessera::c

using namespace tessera::c;
using tessera::ShardedModel;
using tessera::Unit;

tessera_status tessera_forward(tessera_model* model, tessera_unit unit, tessera_scope** scope) {
  return guarded(__func__, [&](Call call) {
    open_scope(call, model, unit, scope, [](ShardedModel& m, Unit u) { return m.forward(u); });
  });
}

tessera_status tessera_backward(tessera_model* model, tessera_unit unit, tessera_scope** scope) {
  return guarded(__func__, [&](Call call) {
    open_scope(call, model, unit, scope, [](ShardedModel& m, Unit u) { return m.backward(u); });
  });
}

tessera_status tessera_forward_of(tessera_model* model, tessera_unit unit, int32_t micro_batch,
                                  tessera_scope** scope) {
  return guarded(__func__, [&](Call call) {
    open_scope(call, model, unit, scope,
               [&](ShardedModel& m, Unit u) { return m.forward(u, micro_batch); });
  });
}

tessera_status tessera_backward_of(tessera_model* model, tessera_unit unit, int32_t micro_batch,
                                   tessera_scope** scope) {
  return guarded(__func__, [&](Call call) {
    open_scope(call, model, unit, scope,
               [&](ShardedModel& m, Unit u) { return m.backward(u, micro_batch); });
  });
}

tessera_status tessera_parameter(tessera_scope* scope, const char* name, tessera_dtype dtype,
                                 const void** data) {
  return guarded(__func__, [&](Call call) {
    const auto open = find<OpenScope>(call, scope);
    call.require(name, "name");
    call.require(data, "data");
    *data = data_as(call, open->any()[name], name, dtype);
  });
}

tessera_status tessera_gradient(tessera_scope* scope, const char* name, tessera_dtype dtype,
                                void** data) {
  return guarded(__func__, [&](Call call) {
    const auto open = find<OpenScope>(call, scope);
    call.require(name, "name");
    call.require(data, "data");
    *data = data_as(call, open->backward(call).grad(name), name, dtype);
  });
}

tessera_status tessera_has_gradient(tessera_scope* scope, const char* name, int32_t* has) {
  return guarded(__func__, [&](Call call) {
    const auto open = find<OpenScope>(call, scope);
    call.require(name, "name");
    call.require(has, "has");
    *has = open->backward(call).has_grad(name) ? 1 : 0;
  });
}

tessera_status tessera_watch(tessera_scope* scope, const void* data, int64_t elems,
                             tessera_dtype dtype) {
  return guarded(__func__, [&](Call call) {
    const auto open = find<OpenScope>(call, scope);
    const auto* const forward = std::get_if<tessera::ForwardScope>(&open->scope);
    if (forward == nullptr) { call.refuse("only a forward scope has an output to watch"); }
    if (elems < 0) { call.refuse("`elems` must be 0 or more"); }
    // No type has more than 8 bytes.
    call.require_array(static_cast<const double*>(data), "data", static_cast<std::uint64_t>(elems));
    forward->watch({data, elems, dtype_of(call, "dtype", dtype)});
  });
}

tessera_status tessera_close(tessera_scope* scope) {
  return guarded(__func__, [&](Call call) {
    const auto open = find<OpenScope>(call, scope);
    if (const std::string held = open->views->names(); !held.empty()) {
      call.refuse(fmt::format(
          "DLPack views of {} are still held, but their memory is about to belong to another unit; "
          "delete them (numpy: the arrays made of them), then close the scope",
          held));
    }
    open->model->close(scope, *open);
  });
}

tessera_status tessera_parameter_dlpack(tessera_scope* scope, const char* name,
                                        struct DLManagedTensor** tensor) {
  return guarded(__func__, [&](Call call) {
    const auto open = find<OpenScope>(call, scope);
    call.require(name, "name");
    call.require(tensor, "tensor");
    *tensor = view_of(call, *open, name, open->any()[name]);
  });
}

tessera_status tessera_gradient_dlpack(tessera_scope* scope, const char* name,
                                       struct DLManagedTensor** tensor) {
  return guarded(__func__, [&](Call call) {
    const auto open = find<OpenScope>(call, scope);
    call.require(name, "name");
    call.require(tensor, "tensor");
    *tensor = view_of(call, *open, name, open->backward(call).grad(name));
  });
}

tessera_status tessera_evaluate(tessera_model* model, tessera_evaluation** evaluation) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require(evaluation, "evaluation");
    *evaluation = found->begin_evaluation();
  });
}

tessera_status tessera_end_pass(tessera_evaluation* evaluation) {
  return guarded(__func__,
                 [&](Call call) { find<OpenEvaluation>(call, evaluation)->evaluation.end_pass(); });
}

tessera_status tessera_end_evaluation(tessera_evaluation* evaluation) {
  return guarded(__func__, [&](Call call) {
    find<OpenEvaluation>(call, evaluation)->model->end_evaluation(call);
  });
}
