// The layout of the public C structs on 64-bit systems, fixed since the first release of this major
// version. This file is compiled, not run.
#include <stdint.h>

#include "tessera/c.h"
#include "tessera/c.h"  // twice: headers must allow it
#include "tessera/dlpack.h"

// A struct with a `size` may grow at its end: record here its new members and size, and its old
// size as kFirstSize (src/c/structs.hpp). Any other failure here means that compiled programs would
// break, which needs a new major version.
#define SIZE(type, bytes) \
  _Static_assert(sizeof(type) == (bytes), "the size of " #type " has changed: see tests/c/abi.c")
#define AT(type, member, offset)                     \
  _Static_assert(offsetof(type, member) == (offset), \
                 #type "." #member " has moved: see tests/c/abi.c")
#define IS(name, value) \
  _Static_assert((name) == (value), #name " has changed its value: see tests/c/abi.c")
#define IS_FUNCTION(name, result, parameters)                            \
  _Static_assert(_Generic(&(name), result(*) parameters: 1, default: 0), \
                 "the type of " #name " has changed: see tests/c/abi.c")
#define IS_CALLBACK(name, result, parameters)                            \
  _Static_assert(_Generic((name)0, result(*) parameters: 1, default: 0), \
                 "the type of " #name " has changed: see tests/c/abi.c")

#if UINTPTR_MAX == UINT64_MAX
SIZE(tessera_world_options, 88);
AT(tessera_world_options, size, 0);
AT(tessera_world_options, device, 8);
AT(tessera_world_options, cuda_ordinal, 12);
AT(tessera_world_options, threads, 16);
AT(tessera_world_options, host_threads, 20);
AT(tessera_world_options, deadline_ms, 24);
AT(tessera_world_options, budget_bytes, 32);
AT(tessera_world_options, deterministic, 40);
AT(tessera_world_options, reserved, 44);
AT(tessera_world_options, products, 48);
AT(tessera_world_options, attention_workspace_bytes, 56);
AT(tessera_world_options, nondeterministic_attention, 64);
AT(tessera_world_options, channel_priority, 68);
AT(tessera_world_options, nccl_min_ctas, 72);
AT(tessera_world_options, nccl_max_ctas, 76);
AT(tessera_world_options, nccl_windows, 80);
AT(tessera_world_options, spared_multiprocessors, 84);

SIZE(tessera_memory_report, 296);
AT(tessera_memory_report, size, 0);
AT(tessera_memory_report, live_bytes, 8);
AT(tessera_memory_report, peak_bytes, 16);
AT(tessera_memory_report, host_peak_bytes, 24);
AT(tessera_memory_report, allocations, 32);
AT(tessera_memory_report, live, 40);
AT(tessera_memory_report, at_peak, 168);

SIZE(tessera_plan_options, 32);
AT(tessera_plan_options, size, 0);
AT(tessera_plan_options, ranks, 8);
AT(tessera_plan_options, rank, 12);
AT(tessera_plan_options, comm, 16);
AT(tessera_plan_options, reserved, 20);
AT(tessera_plan_options, world, 24);

SIZE(tessera_model_options, 152);
AT(tessera_model_options, size, 0);
AT(tessera_model_options, strategy, 8);
AT(tessera_model_options, shard_group, 12);
AT(tessera_model_options, compute, 16);
AT(tessera_model_options, accumulate, 20);
AT(tessera_model_options, checks, 24);
AT(tessera_model_options, inference, 28);
AT(tessera_model_options, remainders, 32);
AT(tessera_model_options, gradient, 36);
AT(tessera_model_options, reduce, 40);
AT(tessera_model_options, loss_scaling, 44);
AT(tessera_model_options, loss_scale_initial, 48);
AT(tessera_model_options, loss_scale_growth, 52);
AT(tessera_model_options, loss_scale_backoff, 56);
AT(tessera_model_options, loss_scale_minimum, 60);
AT(tessera_model_options, loss_scale_growth_interval, 64);
AT(tessera_model_options, max_skips, 72);
AT(tessera_model_options, prefetch, 80);
AT(tessera_model_options, prefetch_backward, 84);
AT(tessera_model_options, reshard, 88);
AT(tessera_model_options, accumulate_mode, 92);
AT(tessera_model_options, persist_elems, 96);
AT(tessera_model_options, bucket_bytes, 104);
AT(tessera_model_options, first_bucket_bytes, 112);
AT(tessera_model_options, offload, 120);
AT(tessera_model_options, offload_keep, 124);
AT(tessera_model_options, align_elems, 128);
AT(tessera_model_options, mesh_replicate, 136);
AT(tessera_model_options, mesh_shard, 140);
AT(tessera_model_options, keep_whole, 144);
AT(tessera_model_options, reserved, 148);

SIZE(tessera_parameter_spec, 144);
AT(tessera_parameter_spec, name, 0);
AT(tessera_parameter_spec, dims, 8);
AT(tessera_parameter_spec, frozen, 12);
AT(tessera_parameter_spec, shape, 16);
AT(tessera_parameter_spec, dtype, 80);
AT(tessera_parameter_spec, reserved_flag, 84);
AT(tessera_parameter_spec, tied_unit, 88);
AT(tessera_parameter_spec, tied_parameter, 96);
AT(tessera_parameter_spec, room, 104);
AT(tessera_parameter_spec, reserved, 112);

SIZE(tessera_unit_options, 24);
AT(tessera_unit_options, size, 0);
AT(tessera_unit_options, root, 8);
AT(tessera_unit_options, gradients_unzeroed, 12);
AT(tessera_unit_options, reshard, 16);
AT(tessera_unit_options, reserved, 20);

SIZE(tessera_parameter_info, 56);
AT(tessera_parameter_info, unit, 0);
AT(tessera_parameter_info, name, 8);
AT(tessera_parameter_info, full_name, 16);
AT(tessera_parameter_info, shape, 24);
AT(tessera_parameter_info, dims, 32);
AT(tessera_parameter_info, trainable, 36);
AT(tessera_parameter_info, elems, 40);
AT(tessera_parameter_info, id, 48);

SIZE(tessera_parameter_group, 64);
AT(tessera_parameter_group, name, 0);
AT(tessera_parameter_group, chooses, 8);
AT(tessera_parameter_group, user, 16);
AT(tessera_parameter_group, lr_scale, 24);
AT(tessera_parameter_group, has_weight_decay, 28);
AT(tessera_parameter_group, weight_decay, 32);
AT(tessera_parameter_group, reserved_flag, 36);
AT(tessera_parameter_group, reserved, 40);

SIZE(tessera_optimizer_options, 88);
AT(tessera_optimizer_options, size, 0);
AT(tessera_optimizer_options, rule, 8);
AT(tessera_optimizer_options, lr, 12);
AT(tessera_optimizer_options, beta1, 16);
AT(tessera_optimizer_options, beta2, 20);
AT(tessera_optimizer_options, eps, 24);
AT(tessera_optimizer_options, weight_decay, 28);
AT(tessera_optimizer_options, momentum, 32);
AT(tessera_optimizer_options, clip_norm, 36);
AT(tessera_optimizer_options, moments, 40);
AT(tessera_optimizer_options, round_stochastically, 44);
AT(tessera_optimizer_options, rounding_seed, 48);
AT(tessera_optimizer_options, decays, 56);
AT(tessera_optimizer_options, decays_user, 64);
AT(tessera_optimizer_options, groups, 72);
AT(tessera_optimizer_options, group_count, 80);

SIZE(tessera_step_report, 64);
AT(tessera_step_report, size, 0);
AT(tessera_step_report, step, 8);
AT(tessera_step_report, loss, 16);
AT(tessera_step_report, grad_norm, 24);
AT(tessera_step_report, clip_coefficient, 32);
AT(tessera_step_report, lr, 36);
AT(tessera_step_report, loss_scale, 40);
AT(tessera_step_report, next_loss_scale, 44);
AT(tessera_step_report, skipped_in_a_row, 48);
AT(tessera_step_report, skipped, 56);
AT(tessera_step_report, reserved, 60);

SIZE(tessera_value, 16);
AT(tessera_value, name, 0);
AT(tessera_value, text, 8);

SIZE(tessera_save_options, 48);
AT(tessera_save_options, size, 0);
AT(tessera_save_options, values, 8);
AT(tessera_save_options, value_count, 16);
AT(tessera_save_options, name, 24);
AT(tessera_save_options, name_user, 32);
AT(tessera_save_options, shard_bytes, 40);

SIZE(tessera_load_options, 56);
AT(tessera_load_options, size, 0);
AT(tessera_load_options, weights_only, 8);
AT(tessera_load_options, convert_moments, 12);
AT(tessera_load_options, name, 16);
AT(tessera_load_options, name_user, 24);
AT(tessera_load_options, value, 32);
AT(tessera_load_options, value_user, 40);
AT(tessera_load_options, allow_partial, 48);
AT(tessera_load_options, reserved, 52);

SIZE(DLDevice, 8);
AT(DLDevice, device_type, 0);
AT(DLDevice, device_id, 4);

SIZE(DLDataType, 4);
AT(DLDataType, code, 0);
AT(DLDataType, bits, 1);
AT(DLDataType, lanes, 2);

SIZE(DLTensor, 48);
AT(DLTensor, data, 0);
AT(DLTensor, device, 8);
AT(DLTensor, ndim, 16);
AT(DLTensor, dtype, 20);
AT(DLTensor, shape, 24);
AT(DLTensor, strides, 32);
AT(DLTensor, byte_offset, 40);

SIZE(DLManagedTensor, 64);
AT(DLManagedTensor, dl_tensor, 0);
AT(DLManagedTensor, manager_ctx, 48);
AT(DLManagedTensor, deleter, 56);

#endif

IS(TESSERA_OK, 0);
IS(TESSERA_CONTRACT_ERROR, 1);
IS(TESSERA_CONFIG_ERROR, 2);
IS(TESSERA_OUT_OF_MEMORY, 3);
IS(TESSERA_DEVICE_ERROR, 4);
IS(TESSERA_COMM_ERROR, 5);
IS(TESSERA_NUMERIC_ERROR, 6);
IS(TESSERA_FORMAT_ERROR, 7);
IS(TESSERA_ERROR, 8);
IS(TESSERA_CPU, 0);
IS(TESSERA_CUDA, 1);
IS(TESSERA_THREADS, 0);
IS(TESSERA_MPI, 1);
IS(TESSERA_NCCL, 2);
IS(TESSERA_DTYPE_DEFAULT, 0);
IS(TESSERA_FP32, 1);
IS(TESSERA_BF16, 2);
IS(TESSERA_FP16, 3);
IS(TESSERA_FP64, 4);
IS(TESSERA_DP, 0);
IS(TESSERA_DDP, 1);
IS(TESSERA_ZERO1, 2);
IS(TESSERA_ZERO2, 3);
IS(TESSERA_ZERO3, 4);
IS(TESSERA_HYBRID, 5);
IS(TESSERA_PARAMETERS, 0);
IS(TESSERA_GRADIENTS, 1);
IS(TESSERA_OPTIMIZER, 2);
IS(TESSERA_GATHER, 3);
IS(TESSERA_REDUCE, 4);
IS(TESSERA_ACTIVATIONS, 5);
IS(TESSERA_WORKSPACE, 6);
IS(TESSERA_COMMUNICATOR, 7);
IS(TESSERA_CONTEXT, 8);
IS(TESSERA_UNATTRIBUTED, 9);
IS(TESSERA_PRIORITY_USUAL, 0);
IS(TESSERA_PRIORITY_HIGH, 1);
IS(TESSERA_SCALE_AUTOMATIC, 0);
IS(TESSERA_SCALE_OFF, 1);
IS(TESSERA_SCALE_DYNAMIC, 2);
IS(TESSERA_SCALE_FIXED, 3);
IS(TESSERA_CHECKS_OFF, 0);
IS(TESSERA_CHECKS_STRICT, 1);
IS(TESSERA_CHECKS_MEMORY, 2);
IS(TESSERA_REDUCE_AUTOMATIC, 0);
IS(TESSERA_REDUCE_EVERY, 1);
IS(TESSERA_REDUCE_DEFERRED, 2);
IS(TESSERA_RESHARD_AFTER_FORWARD, 0);
IS(TESSERA_RESHARD_AFTER_BACKWARD, 1);
IS(TESSERA_OFFLOAD_NONE, 0);
IS(TESSERA_OFFLOAD_OPTIMIZER, 1);
IS(TESSERA_OFFLOAD_STATE, 2);
IS(TESSERA_ADAMW, 0);
IS(TESSERA_ADAM, 1);
IS(TESSERA_SGD, 2);
IS(TESSERA_LION, 3);
IS(TESSERA_MOMENTS_FP32, 0);
IS(TESSERA_MOMENTS_BF16, 1);
IS(TESSERA_MOMENTS_INT8, 2);
IS(TESSERA_MOST_CATEGORIES, 16);
IS(TESSERA_MOST_DIMS, 8);

IS_FUNCTION(tessera_last_error, const char*, (void));
IS_FUNCTION(tessera_status_name, const char*, (tessera_status));
IS_FUNCTION(tessera_fail, tessera_status, (tessera_status, const char*));
IS_FUNCTION(tessera_version, const char*, (void));
IS_FUNCTION(tessera_strategy_from, tessera_status, (const char*, tessera_strategy*));
IS_FUNCTION(tessera_category_name, const char*, (tessera_category));
IS_FUNCTION(tessera_world_options_init, tessera_status, (tessera_world_options*, size_t));
IS_FUNCTION(tessera_launched_ranks, tessera_status, (tessera_device, int32_t*));
IS_FUNCTION(tessera_run_ranks, tessera_status,
            (int32_t, tessera_rank_fn, void*, const tessera_world_options*));
IS_FUNCTION(tessera_run, tessera_status, (tessera_rank_fn, void*, const tessera_world_options*));
IS_FUNCTION(tessera_world_place, tessera_status, (tessera_world*, int32_t*, int32_t*));
IS_FUNCTION(tessera_world_computes, tessera_status, (tessera_world*, int32_t*));
IS_FUNCTION(tessera_world_stream, tessera_status, (tessera_world*, void**));
IS_FUNCTION(tessera_barrier, tessera_status, (tessera_world*));
IS_FUNCTION(tessera_sum, tessera_status, (tessera_world*, double, double*));
IS_FUNCTION(tessera_abort, tessera_status, (tessera_world*, const char*));
IS_FUNCTION(tessera_memory, tessera_status, (tessera_world*, tessera_memory_report*));
IS_FUNCTION(tessera_register_memory, tessera_status,
            (tessera_world*, tessera_category, uint64_t, const char*, tessera_registration**));
IS_FUNCTION(tessera_unregister_memory, tessera_status, (tessera_registration*));
IS_FUNCTION(tessera_allocate, tessera_status,
            (tessera_world*, tessera_category, uint64_t, const char*, void**));
IS_FUNCTION(tessera_free, tessera_status, (tessera_world*, void*));
IS_FUNCTION(tessera_plan_options_init, tessera_status, (tessera_plan_options*, size_t));
IS_FUNCTION(tessera_plan, tessera_status,
            (const tessera_plan_options*, tessera_rank_fn, void*, tessera_memory_report*));
IS_FUNCTION(tessera_model_options_init, tessera_status, (tessera_model_options*, size_t));
IS_FUNCTION(tessera_unit_options_init, tessera_status, (tessera_unit_options*, size_t));
IS_FUNCTION(tessera_model_create, tessera_status,
            (tessera_world*, const tessera_model_options*, tessera_model**));
IS_FUNCTION(tessera_model_destroy, tessera_status, (tessera_model*));
IS_FUNCTION(tessera_add_unit, tessera_status,
            (tessera_model*, const char*, const tessera_parameter_spec*, size_t,
             const tessera_unit_options*, tessera_unit*));
IS_FUNCTION(tessera_declare_order, tessera_status, (tessera_model*, const tessera_unit*, size_t));
IS_FUNCTION(tessera_materialize, tessera_status, (tessera_model*, tessera_initializer_fn, void*));
IS_FUNCTION(tessera_materialize_normal, tessera_status, (tessera_model*, uint64_t, float));
IS_FUNCTION(tessera_materialize_constant, tessera_status, (tessera_model*, float));
IS_FUNCTION(tessera_fill_normal, tessera_status,
            (uint64_t, uint32_t, int64_t, int64_t, float, float*));
IS_FUNCTION(tessera_optimizer_options_init, tessera_status,
            (tessera_optimizer_options*, size_t, int32_t));
IS_FUNCTION(tessera_optimize_with, tessera_status,
            (tessera_model*, const tessera_optimizer_options*));
IS_FUNCTION(tessera_forward, tessera_status, (tessera_model*, tessera_unit, tessera_scope**));
IS_FUNCTION(tessera_backward, tessera_status, (tessera_model*, tessera_unit, tessera_scope**));
IS_FUNCTION(tessera_forward_of, tessera_status,
            (tessera_model*, tessera_unit, int32_t, tessera_scope**));
IS_FUNCTION(tessera_backward_of, tessera_status,
            (tessera_model*, tessera_unit, int32_t, tessera_scope**));
IS_FUNCTION(tessera_parameter, tessera_status,
            (tessera_scope*, const char*, tessera_dtype, const void**));
IS_FUNCTION(tessera_gradient, tessera_status, (tessera_scope*, const char*, tessera_dtype, void**));
IS_FUNCTION(tessera_has_gradient, tessera_status, (tessera_scope*, const char*, int32_t*));
IS_FUNCTION(tessera_watch, tessera_status, (tessera_scope*, const void*, int64_t, tessera_dtype));
IS_FUNCTION(tessera_close, tessera_status, (tessera_scope*));
IS_FUNCTION(tessera_parameter_dlpack, tessera_status,
            (tessera_scope*, const char*, struct DLManagedTensor**));
IS_FUNCTION(tessera_gradient_dlpack, tessera_status,
            (tessera_scope*, const char*, struct DLManagedTensor**));
IS_FUNCTION(tessera_evaluate, tessera_status, (tessera_model*, tessera_evaluation**));
IS_FUNCTION(tessera_end_pass, tessera_status, (tessera_evaluation*));
IS_FUNCTION(tessera_end_evaluation, tessera_status, (tessera_evaluation*));
IS_FUNCTION(tessera_step, tessera_status, (tessera_model*, const double*));
IS_FUNCTION(tessera_step_counted, tessera_status,
            (tessera_model*, const double*, const double*, double));
IS_FUNCTION(tessera_loss_scale, tessera_status, (tessera_model*, const float**));
IS_FUNCTION(tessera_set_learning_rate, tessera_status, (tessera_model*, float));
IS_FUNCTION(tessera_report, tessera_status, (tessera_model*, tessera_step_report*));
IS_FUNCTION(tessera_previous_report, tessera_status, (tessera_model*, tessera_step_report*));
IS_FUNCTION(tessera_steps, tessera_status, (tessera_model*, int64_t*));
IS_FUNCTION(tessera_export_state, tessera_status,
            (tessera_model*, tessera_category, tessera_sink_fn, void*));
IS_FUNCTION(tessera_save_options_init, tessera_status, (tessera_save_options*, size_t));
IS_FUNCTION(tessera_save, tessera_status,
            (tessera_model*, const char*, const tessera_save_options*));
IS_FUNCTION(tessera_freeze, tessera_status, (tessera_model*, tessera_unit, const char*));
IS_FUNCTION(tessera_unfreeze, tessera_status, (tessera_model*, tessera_unit, const char*));
IS_FUNCTION(tessera_newest_checkpoint, tessera_status, (const char*, char*, size_t, int64_t*));
IS_FUNCTION(tessera_load_options_init, tessera_status, (tessera_load_options*, size_t));
IS_FUNCTION(tessera_load, tessera_status,
            (tessera_model*, const char*, const tessera_load_options*));
IS_FUNCTION(tessera_save_weights, tessera_status,
            (tessera_model*, const char*, tessera_name_fn, void*));
IS_FUNCTION(tessera_materialize_from, tessera_status,
            (tessera_model*, const char*, tessera_name_fn, void*));
IS_CALLBACK(tessera_rank_fn, tessera_status, (tessera_world*, void*));
IS_CALLBACK(tessera_initializer_fn, tessera_status,
            (const tessera_parameter_info*, int64_t, int64_t, float*, void*));
IS_CALLBACK(tessera_decays_fn, int32_t, (const char*, const int64_t*, int32_t, void*));
IS_CALLBACK(tessera_chooses_fn, int32_t, (const tessera_parameter_info*, void*));
IS_CALLBACK(tessera_sink_fn, tessera_status,
            (const tessera_parameter_info*, const float*, int64_t, void*));
IS_CALLBACK(tessera_name_fn, const char*, (const tessera_parameter_info*, void*));
IS_CALLBACK(tessera_value_fn, tessera_status, (const char*, const char*, void*));

// C does not allow an empty source file.
int tessera_abi_is_as_recorded = 1;
