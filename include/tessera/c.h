/*
 * Tessera for C: training state that is sharded over ranks (docs/c.md).
 *
 * The trainer declares units of parameters, opens a scope around each use of a unit, and gets
 * pointers; the library decides what each rank keeps. What a call does beyond the words here is
 * what the C++ call of the same name does (tessera/engine/sharded_model.hpp and others).
 *
 * Errors:    a call returns TESSERA_OK or the kind of error, and tessera_last_error() says for a
 *            person what was wrong and what to do. No exception leaves the library. A handle that
 *            is null, has been closed or is of another kind is TESSERA_CONTRACT_ERROR. Where a call
 *            fails, it writes nothing to its results.
 * Callbacks: a callback returns TESSERA_OK, or what ends the rank: the status of a call that has
 *            failed, or tessera_fail(). All other ranks then end too, and the run returns the first
 *            cause. A callback must not be left by longjmp.
 * Arguments: texts, arrays, structs and callbacks are used during the call alone.
 * Handles:   those of a rank end with the rank's callback at the latest, so that a callback may
 *            return at any place. A scope that is still open when it returns TESSERA_OK is an
 *            error.
 * Threads:   a rank's handles are used by one thread at a time. Handles of different ranks share
 *            nothing.
 * Structs:   one with a member `size` begins with it: sizeof the struct as the caller was compiled
 *            with. An _init function sets it with the defaults; a report is declared as
 *            `tessera_step_report report = {.size = sizeof report};`. Members are added at its
 *            end only. A struct with `reserved` has zeros there; it never grows.
 * Stability: within a major version no function and no member goes, moves or changes its meaning.
 */
#ifndef TESSERA_C_H
#define TESSERA_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* ------------------------------------------------------------------------------------ errors */

/* What a call returns. */
typedef int32_t tessera_status;
enum {
  TESSERA_OK = 0,
  TESSERA_CONTRACT_ERROR = 1, /* the caller broke a rule; nothing changed */
  TESSERA_CONFIG_ERROR = 2,   /* what was asked for cannot be; nothing started */
  TESSERA_OUT_OF_MEMORY = 3,  /* memory was refused; nothing changed */
  TESSERA_DEVICE_ERROR = 4,   /* a call of the device failed; the model is dead */
  TESSERA_COMM_ERROR = 5,     /* a peer was lost or differs; the ranks are dead */
  TESSERA_NUMERIC_ERROR = 6,  /* training has come to values that are not finite */
  TESSERA_FORMAT_ERROR = 7,   /* a file does not hold what it should; nothing was loaded */
  TESSERA_ERROR = 8           /* any other */
};

/* Returns the text of the last call of this thread that failed, or "". It is valid until the
 * thread's next call of the library. */
const char* tessera_last_error(void);
/* Returns "ok", "contract error", ..., or "unknown status". */
const char* tessera_status_name(tessera_status status);
/* Makes `message` this thread's last error and returns `status` (TESSERA_ERROR for TESSERA_OK and
 * unknown ones): what a callback returns for a failure of its own. */
tessera_status tessera_fail(tessera_status status, const char* message);
/* Returns from the enclosing function, which returns a tessera_status, if `call` has failed. */
#define TESSERA_TRY(call)                                      \
  do {                                                         \
    const tessera_status tessera_status_ = (call);             \
    if (tessera_status_ != TESSERA_OK) return tessera_status_; \
  } while (0)

/* Returns the library's version, such as "1.2.3". */
const char* tessera_version(void);

/* ------------------------------------------------------------------------------------- words */

typedef int32_t tessera_device;
enum { TESSERA_CPU = 0, TESSERA_CUDA = 1 };

/* What ranks talk through; only a plan asks. */
typedef int32_t tessera_comm;
enum { TESSERA_THREADS = 0, TESSERA_MPI = 1, TESSERA_NCCL = 2 };

/* Element types. TESSERA_DTYPE_DEFAULT stands for the model's where a parameter may choose. */
typedef int32_t tessera_dtype;
enum {
  TESSERA_DTYPE_DEFAULT = 0,
  TESSERA_FP32 = 1,
  TESSERA_BF16 = 2,
  TESSERA_FP16 = 3,
  TESSERA_FP64 = 4
};

/* Which part of the training state each rank keeps (tessera/engine/strategy.hpp). */
typedef int32_t tessera_strategy;
enum {
  TESSERA_DP = 0,
  TESSERA_DDP = 1,
  TESSERA_ZERO1 = 2,
  TESSERA_ZERO2 = 3,
  TESSERA_ZERO3 = 4,
  TESSERA_HYBRID = 5
};
/* Reads "dp", "ddp", "zero1", "zero2", "zero3", "fsdp" or "hybrid". */
tessera_status tessera_strategy_from(const char* name, tessera_strategy* strategy);

/* What memory is for. */
typedef int32_t tessera_category;
enum {
  TESSERA_PARAMETERS = 0,
  TESSERA_GRADIENTS = 1,
  TESSERA_OPTIMIZER = 2,
  TESSERA_GATHER = 3,
  TESSERA_REDUCE = 4,
  TESSERA_ACTIVATIONS = 5,
  TESSERA_WORKSPACE = 6,
  TESSERA_COMMUNICATOR = 7,
  TESSERA_CONTEXT = 8,
  TESSERA_UNATTRIBUTED = 9
};
/* The length of arrays by category; places that no category has hold 0. */
#define TESSERA_MOST_CATEGORIES 16
/* Returns "parameters", "gradients", ..., or NULL if there is no such category. */
const char* tessera_category_name(tessera_category category);

/* ------------------------------------------------------------------------------------- ranks */

/* One rank's view of the job. It ends when the rank's callback returns. */
typedef struct tessera_world tessera_world;

/* The priority of the streams of gathers and reductions, on CUDA. */
enum { TESSERA_PRIORITY_USUAL = 0, TESSERA_PRIORITY_HIGH = 1 };

/* How ranks are set up (tessera/world/world_options.hpp, which says what each member means and its
 * range). Flags are 0 or 1. */
typedef struct tessera_world_options {
  size_t size;
  tessera_device device;
  int32_t cuda_ordinal;  /* of a rank's CUDA device; -1: by the rank's place */
  int32_t threads;       /* compute threads of a rank on the CPU */
  int32_t host_threads;  /* for an offloaded optimizer, on CUDA; 0: an equal part of the cores */
  int64_t deadline_ms;   /* the longest time of a collective */
  uint64_t budget_bytes; /* the most that a rank may hold; 0: no limit */
  int32_t deterministic; /* 1: NCCL has a fixed order of sums too */
  int32_t reserved;
  const char* products; /* the path of recorded algorithms of cuBLASLt, on CUDA; NULL: none */
  uint64_t attention_workspace_bytes; /* the most that cuDNN's attention takes for itself */
  int32_t nondeterministic_attention; /* flag: cuDNN adds its gradients in any order */
  int32_t channel_priority;           /* TESSERA_PRIORITY_... */
  int32_t nccl_min_ctas;              /* 1 to 64; 0: NCCL's choice */
  int32_t nccl_max_ctas;
  int32_t nccl_windows; /* flag: arenas are symmetric windows */
  int32_t reserved_flag;
} tessera_world_options;
tessera_status tessera_world_options_init(tessera_world_options* options, size_t size);

/* Writes the number of ranks of the job that tessera_run would join on devices of this kind, or 0
 * where no launcher has started one. A program asks before it starts ranks as threads: in each
 * process of a job they would be as many trainings of their own. */
tessera_status tessera_launched_ranks(tessera_device device, int32_t* ranks);

/* A rank's program. */
typedef tessera_status (*tessera_rank_fn)(tessera_world* world, void* user);

/* Runs `body` as `ranks` threads of this process and returns when all have finished. `options` may
 * be NULL, here and below. */
tessera_status tessera_run_ranks(int32_t ranks, tessera_rank_fn body, void* user,
                                 const tessera_world_options* options);
/* Runs `body` on this thread as this process's rank of the job that mpirun, srun or torchrun has
 * started; without one, as the only rank. A process whose run failed reports it and exits. */
tessera_status tessera_run(tessera_rank_fn body, void* user, const tessera_world_options* options);

/* Any of the results may be NULL. */
tessera_status tessera_world_place(tessera_world* world, int32_t* rank, int32_t* size);
/* Writes 0 on a rank that only counts (tessera_plan): its memory must not be touched, and the
 * trainer skips its computation. Writes 1 on all others. */
tessera_status tessera_world_computes(tessera_world* world, int32_t* computes);
/* Writes the cudaStream_t on which parameters are ready and kernels must run; NULL on a CPU, where
 * that is the calling thread. */
tessera_status tessera_world_stream(tessera_world* world, void** stream);
/* Collective: returns when every rank has made this call. */
tessera_status tessera_barrier(tessera_world* world);
/* Collective: writes the sum of `value` over the ranks, added in rank order. */
tessera_status tessera_sum(tessera_world* world, double value, double* sum);
/* Tells every rank that this one cannot go on. Any thread may call it. */
tessera_status tessera_abort(tessera_world* world, const char* reason);

/* ------------------------------------------------------------------------------------ memory */

/* What one rank holds now and held at its peak, by category. */
typedef struct tessera_memory_report {
  size_t size;
  uint64_t live_bytes;      /* now */
  uint64_t peak_bytes;      /* the highest total */
  uint64_t host_peak_bytes; /* of host memory for what has been moved off the device */
  uint64_t allocations;     /* made so far */
  uint64_t live[TESSERA_MOST_CATEGORIES];    /* now */
  uint64_t at_peak[TESSERA_MOST_CATEGORIES]; /* at the first moment of the highest total */
} tessera_memory_report;
tessera_status tessera_memory(tessera_world* world, tessera_memory_report* report);

/* Memory of the trainer's own that reports and the budget count. */
typedef struct tessera_registration tessera_registration;
/* Counts `bytes` that the trainer allocated itself until tessera_unregister_memory, or the rank's
 * end. `registration` may be NULL. */
tessera_status tessera_register_memory(tessera_world* world, tessera_category category,
                                       uint64_t bytes, const char* name,
                                       tessera_registration** registration);
tessera_status tessera_unregister_memory(tessera_registration* registration);
/* Allocates counted device memory, aligned to 128 bytes, contents undefined. */
tessera_status tessera_allocate(tessera_world* world, tessera_category category, uint64_t bytes,
                                const char* name, void** address);
/* Frees what tessera_allocate of this rank returned; NULL does nothing. */
tessera_status tessera_free(tessera_world* world, void* address);

/* What tessera_plan asks about. */
typedef struct tessera_plan_options {
  size_t size;
  int32_t ranks; /* of the job */
  int32_t rank;  /* the rank that is counted; strategies treat all but rank 0 alike */
  tessera_comm comm;
  int32_t reserved;
  const tessera_world_options* world; /* its device is the one that is planned for; may be NULL */
} tessera_plan_options;
tessera_status tessera_plan_options_init(tessera_plan_options* options, size_t size);
/* Counts to the byte what `body` would hold as one rank of a job: runs it on a device that only
 * counts, on this thread. One step asks for all that a run ever asks for. */
tessera_status tessera_plan(const tessera_plan_options* options, tessera_rank_fn body, void* user,
                            tessera_memory_report* report);

/* ------------------------------------------------------------------------------------- model */

/* A model whose parameters, gradients and optimizer state are sharded over the ranks:
 * declared --materialize--> ready --optimize_with--> trainable. Every call is made by all ranks, in
 * the same order with the same units. */
typedef struct tessera_model tessera_model;
/* A unit of a model; 0 is none. */
typedef uint64_t tessera_unit;

/* How the loss scale changes. */
enum {
  TESSERA_SCALE_AUTOMATIC = 0, /* dynamic with fp16, else off */
  TESSERA_SCALE_OFF = 1,
  TESSERA_SCALE_DYNAMIC = 2,
  TESSERA_SCALE_FIXED = 3
};
/* Which mistakes of the trainer are looked for. */
enum { TESSERA_CHECKS_OFF = 0, TESSERA_CHECKS_STRICT = 1, TESSERA_CHECKS_MEMORY = 2 };
/* When the gradients of several micro-batches are reduced. */
enum { TESSERA_REDUCE_AUTOMATIC = 0, TESSERA_REDUCE_EVERY = 1, TESSERA_REDUCE_DEFERRED = 2 };
/* When a block gives its gathered parameters back. */
enum { TESSERA_RESHARD_AFTER_FORWARD = 0, TESSERA_RESHARD_AFTER_BACKWARD = 1 };
/* What is in host memory: the optimizer's state and its update, or its state alone. */
enum { TESSERA_OFFLOAD_NONE = 0, TESSERA_OFFLOAD_OPTIMIZER = 1, TESSERA_OFFLOAD_STATE = 2 };

/* How a model keeps its state, computes and is trained (tessera/engine/model_options.hpp, which
 * says what each member means and its range). Flags are 0 or 1. */
typedef struct tessera_model_options {
  size_t size;
  tessera_strategy strategy;
  int32_t shard_group;
  tessera_dtype compute;
  int32_t accumulate;
  int32_t checks;
  int32_t inference;  /* flag: the model is only ever evaluated */
  int32_t remainders; /* flag: fp32 masters of bf16 parameters are kept as remainders */
  tessera_dtype gradient;
  tessera_dtype reduce;
  int32_t loss_scaling;
  float loss_scale_initial;
  float loss_scale_growth;
  float loss_scale_backoff;
  float loss_scale_minimum;
  int64_t loss_scale_growth_interval;
  int64_t max_skips;
  int32_t prefetch;
  int32_t prefetch_backward; /* -1: as `prefetch` */
  int32_t reshard;
  int32_t accumulate_mode;
  int64_t persist_elems;
  uint64_t bucket_bytes;
  uint64_t first_bucket_bytes;
  int32_t offload;
  float offload_keep;
  int64_t align_elems;
  int32_t mesh_replicate; /* the ranks along `replicate` and `shard`; both 0: no mesh is given */
  int32_t mesh_shard;
} tessera_model_options;
tessera_status tessera_model_options_init(tessera_model_options* options, size_t size);

/* The most extents of a parameter. */
#define TESSERA_MOST_DIMS 8
/* A parameter as its author declares it: {.name = "weight", .dims = 2, .shape = {out, in}}. */
typedef struct tessera_parameter_spec {
  const char* name; /* unique in its unit */
  int32_t dims;     /* the number of extents, 0 for a scalar */
  int32_t frozen;   /* flag: without gradient and optimizer state */
  int64_t shape[TESSERA_MOST_DIMS];
  tessera_dtype dtype;
  int32_t reserved_flag;
  const char* tied_unit; /* an alias of this parameter of an earlier unit, if it is not NULL */
  const char* tied_parameter;
  int64_t room; /* the least number of elements that its place holds */
  int64_t reserved[4];
} tessera_parameter_spec;

/* How a unit is kept (tessera/engine/unit.hpp). */
typedef struct tessera_unit_options {
  size_t size;
  int32_t root;               /* flag: used outside the repeated blocks, with a slot of its own */
  int32_t gradients_unzeroed; /* flag: backward overwrites gradients instead of adding to them */
  int32_t reshard;            /* -1: as the model */
  int32_t reserved;
} tessera_unit_options;
tessera_status tessera_unit_options_init(tessera_unit_options* options, size_t size);

/* A parameter as callbacks see it. The library owns it; it is valid during the call. */
typedef struct tessera_parameter_info {
  const char* unit;
  const char* name;
  const char* full_name; /* "unit.name" */
  const int64_t* shape;
  int32_t dims;
  int32_t trainable;
  int64_t elems;
  uint32_t id; /* the place in the order of registration, aliases left out */
} tessera_parameter_info;

tessera_status tessera_model_create(tessera_world* world, const tessera_model_options* options,
                                    tessera_model** model);
/* Ends the model. TESSERA_CONTRACT_ERROR while a scope or an evaluation is open. */
tessera_status tessera_model_destroy(tessera_model* model);
tessera_status tessera_add_unit(tessera_model* model, const char* name,
                                const tessera_parameter_spec* parameters, size_t count,
                                const tessera_unit_options* options, tessera_unit* unit);
/* Says that every forward pass opens exactly these units in this order, and backward the reverse.
 */
tessera_status tessera_declare_order(tessera_model* model, const tessera_unit* units, size_t count);

/* Writes the initial values of elements [first, first + count) of a parameter to `out`, in host
 * memory. Values depend on the element alone: each rank asks for what it keeps. */
typedef tessera_status (*tessera_initializer_fn)(const tessera_parameter_info* parameter,
                                                 int64_t first, int64_t count, float* out,
                                                 void* user);
/* Collective: lays out, allocates and initialises the parameters, one of four ways. */
tessera_status tessera_materialize(tessera_model* model, tessera_initializer_fn initial,
                                   void* user);
tessera_status tessera_materialize_normal(tessera_model* model, uint64_t seed, float stddev);
tessera_status tessera_materialize_constant(tessera_model* model, float value);
/* Draws from N(0, stddev^2) what tessera_materialize_normal would: for an initialiser that treats
 * some parameters differently. `id` is the parameter's. */
tessera_status tessera_fill_normal(uint64_t seed, uint32_t id, int64_t first, int64_t count,
                                   float stddev, float* out);

/* Update rules (tessera/base/update_rule.hpp has the formulas). */
enum { TESSERA_ADAMW = 0, TESSERA_ADAM = 1, TESSERA_SGD = 2, TESSERA_LION = 3 };
enum { TESSERA_MOMENTS_FP32 = 0, TESSERA_MOMENTS_BF16 = 1, TESSERA_MOMENTS_INT8 = 2 };
/* Returns 1 if a parameter decays, else 0: the same on every rank. `name` is "unit.name". */
typedef int32_t (*tessera_decays_fn)(const char* name, const int64_t* shape, int32_t dims,
                                     void* user);
/* Returns 1 if a parameter belongs to a group, else 0: the same on every rank. */
typedef int32_t (*tessera_chooses_fn)(const tessera_parameter_info* parameter, void* user);
/* Parameters with a rate and a decay of their own. A parameter belongs to the first group that
 * chooses it. */
typedef struct tessera_parameter_group {
  const char* name;
  tessera_chooses_fn chooses;
  void* user;
  float lr_scale;           /* the factor of the rate; 1 keeps it */
  int32_t has_weight_decay; /* flag: `weight_decay` counts, else the optimizer's */
  float weight_decay;
  int32_t reserved_flag;
  int64_t reserved[3];
} tessera_parameter_group;
/* A rule with its numbers, and what holds for every rule (tessera/optim/optimizer.hpp). */
typedef struct tessera_optimizer_options {
  size_t size;
  int32_t rule;
  float lr;
  float beta1;
  float beta2;
  float eps;
  float weight_decay;
  float momentum;  /* of TESSERA_SGD */
  float clip_norm; /* 0: gradients are not clipped */
  int32_t moments;
  int32_t round_stochastically; /* flag: 16-bit parameters and moments */
  uint64_t rounding_seed;
  tessera_decays_fn decays; /* NULL: parameters of two extents or more decay */
  void* decays_user;
  const tessera_parameter_group* groups;
  size_t group_count;
} tessera_optimizer_options;
/* Sets the defaults of `rule`. */
tessera_status tessera_optimizer_options_init(tessera_optimizer_options* options, size_t size,
                                              int32_t rule);
/* Collective: allocates and zeroes the optimizer's state. Called once. */
tessera_status tessera_optimize_with(tessera_model* model,
                                     const tessera_optimizer_options* options);

/* ------------------------------------------------------------------------------------ scopes */

/* An open use of a unit, during which its parameters (in backward, its gradients too) are whole on
 * this rank. */
typedef struct tessera_scope tessera_scope;

tessera_status tessera_forward(tessera_model* model, tessera_unit unit, tessera_scope** scope);
tessera_status tessera_backward(tessera_model* model, tessera_unit unit, tessera_scope** scope);
/* The same for micro-batch `micro_batch` of the step, from 0, where several are in flight. */
tessera_status tessera_forward_of(tessera_model* model, tessera_unit unit, int32_t micro_batch,
                                  tessera_scope** scope);
tessera_status tessera_backward_of(tessera_model* model, tessera_unit unit, int32_t micro_batch,
                                   tessera_scope** scope);
/* Writes the device address of a parameter's first element, valid until the scope is closed.
 * TESSERA_CONTRACT_ERROR if its elements are not of `dtype`. */
tessera_status tessera_parameter(tessera_scope* scope, const char* name, tessera_dtype dtype,
                                 const void** data);
/* The same of the gradient, to which the trainer adds. TESSERA_CONTRACT_ERROR in a forward scope
 * and for a frozen parameter. */
tessera_status tessera_gradient(tessera_scope* scope, const char* name, tessera_dtype dtype,
                                void** data);
/* Writes 1 if the parameter is trained, else 0. Backward scopes only. */
tessera_status tessera_has_gradient(tessera_scope* scope, const char* name, int32_t* has);
/* Names what a forward scope has computed, so that an error can say where values became not finite.
 */
tessera_status tessera_watch(tessera_scope* scope, const void* data, int64_t elems,
                             tessera_dtype dtype);
/* Ends the scope: parameters go back, gradients are reduced. */
tessera_status tessera_close(tessera_scope* scope);

/* DLPack's tensor: of its own header dlpack.h, or of tessera/dlpack.h. */
struct DLManagedTensor;
/* Writes a DLPack view of a parameter or a gradient, on the CPU or CUDA. The caller, or who took it
 * over, calls its deleter; any thread may. Its values are the parameter's until the scope is
 * closed: tessera_close is refused with TESSERA_CONTRACT_ERROR, and leaves the scope open, while a
 * view of it is held. Where a rank ends before, the memory stays until the last view of the model
 * is deleted, with undefined values. Parameters must only be read (DLPack cannot say so before
 * version 1). On CUDA the values are ready on tessera_world_stream. */
tessera_status tessera_parameter_dlpack(tessera_scope* scope, const char* name,
                                        struct DLManagedTensor** tensor);
tessera_status tessera_gradient_dlpack(tessera_scope* scope, const char* name,
                                       struct DLManagedTensor** tensor);

/* While it is open the model is evaluated: all scopes are forward ones, in any number of passes. */
typedef struct tessera_evaluation tessera_evaluation;
/* Collective. */
tessera_status tessera_evaluate(tessera_model* model, tessera_evaluation** evaluation);
tessera_status tessera_end_pass(tessera_evaluation* evaluation);
/* Ends the last pass and the evaluation. */
tessera_status tessera_end_evaluation(tessera_evaluation* evaluation);

/* -------------------------------------------------------------------------------------- step */

/* What one step did. The same on every rank. */
typedef struct tessera_step_report {
  size_t size;
  int64_t step;     /* from 1 */
  double loss;      /* the mean over ranks of the losses given to tessera_step */
  double grad_norm; /* of the averaged gradient, before clipping */
  float clip_coefficient;
  float lr;
  float loss_scale;
  float next_loss_scale;
  int64_t skipped_in_a_row;
  int32_t skipped; /* flag: nothing was updated, the gradient was not finite */
  int32_t reserved;
} tessera_step_report;

/* Collective: averages the gradients, clips them and updates the parameters. `loss` is the device
 * address of this rank's mean loss, or NULL. */
tessera_status tessera_step(tessera_model* model, const double* loss);
/* Writes the device address of the factor by which the trainer multiplies the gradient of its loss;
 * NULL before tessera_optimize_with. */
tessera_status tessera_loss_scale(tessera_model* model, const float** scale);
tessera_status tessera_set_learning_rate(tessera_model* model, float lr);
/* Waits for the last step. */
tessera_status tessera_report(tessera_model* model, tessera_step_report* report);
/* Writes the report of the step before the last, without waiting for the last. */
tessera_status tessera_previous_report(tessera_model* model, tessera_step_report* report);
/* Writes the number of steps made, with those before the checkpoint that was loaded. */
tessera_status tessera_steps(tessera_model* model, int64_t* steps);

/* Collective: calls `sink` on every rank with each whole parameter (TESSERA_PARAMETERS) or gradient
 * (TESSERA_GRADIENTS), widened to fp32, in host memory that is valid during the call. */
typedef tessera_status (*tessera_sink_fn)(const tessera_parameter_info* parameter,
                                          const float* values, int64_t count, void* user);
tessera_status tessera_export_state(tessera_model* model, tessera_category what,
                                    tessera_sink_fn sink, void* user);

/* ------------------------------------------------------------------------------- checkpoints */

/* Returns the name of a parameter in files, valid until the next call. It is unique. */
typedef const char* (*tessera_name_fn)(const tessera_parameter_info* parameter, void* user);
/* A value that a trainer keeps beside its model, such as its position in the data. */
typedef struct tessera_value {
  const char* name;
  const char* text;
} tessera_value;
typedef tessera_status (*tessera_value_fn)(const char* name, const char* text, void* user);

typedef struct tessera_save_options {
  size_t size;
  const tessera_value* values; /* the same on all ranks */
  size_t value_count;
  tessera_name_fn name; /* NULL: "unit.name" */
  void* name_user;
  uint64_t shard_bytes; /* the most bytes of tensors in a file */
} tessera_save_options;
tessera_status tessera_save_options_init(tessera_save_options* options, size_t size);
/* Collective: writes the whole training state to `folder`/step-N (docs/checkpoints.md). It is there
 * whole or not at all. */
tessera_status tessera_save(tessera_model* model, const char* folder,
                            const tessera_save_options* options);
/* Writes the path of the newest whole checkpoint in `folder`, of at most `size` bytes with its 0.
 * `step` may be NULL. */
tessera_status tessera_newest_checkpoint(const char* folder, char* path, size_t size,
                                         int64_t* step);

typedef struct tessera_load_options {
  size_t size;
  int32_t weights_only;    /* flag: the optimizer starts anew */
  int32_t convert_moments; /* flag: moments of another format are converted, not refused */
  tessera_name_fn name;    /* NULL: "unit.name" */
  void* name_user;
  tessera_value_fn value; /* called with each value, once the model is loaded; may be NULL */
  void* value_user;
} tessera_load_options;
tessera_status tessera_load_options_init(tessera_load_options* options, size_t size);
/* Collective: fills the model from the checkpoint at `path`, on any number of ranks and under any
 * strategy. */
tessera_status tessera_load(tessera_model* model, const char* path,
                            const tessera_load_options* options);

/* Collective: rank 0 writes every parameter to `path` (safetensors, fp32). `name` may be NULL. */
tessera_status tessera_save_weights(tessera_model* model, const char* path, tessera_name_fn name,
                                    void* user);
/* tessera_materialize with the weights in a safetensors file, an index or a checkpoint's folder. */
tessera_status tessera_materialize_from(tessera_model* model, const char* path,
                                        tessera_name_fn name, void* user);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif /* TESSERA_C_H */
