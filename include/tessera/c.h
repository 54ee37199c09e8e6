/**
 * @file
 * Tessera for C: training state that is sharded over ranks (docs/c.md).
 *
 * The trainer declares units of parameters, opens a scope around each use of a unit, and gets
 * pointers; the library decides what each rank keeps. A call has the full contract of the C++ call
 * of the same name (tessera/engine/sharded_model.hpp and others).
 *
 * Errors:    a call returns TESSERA_OK or the kind of error, and tessera_last_error() returns a
 *            text that says what was wrong and what to do. No exception leaves the library. A
 *            handle that is null, has been closed or is of another kind is TESSERA_CONTRACT_ERROR.
 *            A call that fails writes nothing to its results.
 * Callbacks: a callback returns TESSERA_OK, or the status that ends the rank: the status of a call
 *            that failed, or that of tessera_fail(). All other ranks then end too, and the run
 *            returns the first cause. A callback must not be left by longjmp.
 * Arguments: texts, arrays, structs and callbacks are used only during the call.
 * Handles:   handles of a rank end with the rank's callback at the latest, so that a callback may
 *            return at any place. A scope that is still open when it returns TESSERA_OK is an
 *            error.
 * Threads:   a rank's handles are used by one thread at a time. Handles of different ranks share
 *            nothing.
 * Structs:   a struct with a member `size` begins with it: sizeof the struct, as the caller was
 *            compiled. An _init function sets it and the defaults; a report is declared as
 *            `tessera_step_report report = {.size = sizeof report};`. Members are added at its
 *            end only. A struct with `reserved` has zeros there; without `size` it never grows.
 * Stability: within a major version no function or member is removed, moved or changed in meaning.
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

/** The result of a call: TESSERA_OK or the kind of error. */
typedef int32_t tessera_status;
/** Values of tessera_status. */
enum {
  TESSERA_OK = 0,             /**< success */
  TESSERA_CONTRACT_ERROR = 1, /**< the caller broke a rule; nothing changed */
  TESSERA_CONFIG_ERROR = 2,   /**< the requested configuration is impossible; nothing started */
  TESSERA_OUT_OF_MEMORY = 3,  /**< memory was refused; nothing changed */
  TESSERA_DEVICE_ERROR = 4,   /**< a call of the device failed; the model is dead */
  TESSERA_COMM_ERROR = 5,     /**< a peer was lost, late or differs; the ranks are dead */
  TESSERA_NUMERIC_ERROR = 6,  /**< training produced values that are not finite */
  TESSERA_FORMAT_ERROR = 7,   /**< a file has wrong contents; nothing was loaded */
  TESSERA_ERROR = 8           /**< any other error */
};

/** Returns the text of the last call of this thread that failed, or "". It is valid until the
 * thread's next call of the library. */
const char* tessera_last_error(void);
/** Returns "ok", "contract error", ..., or "unknown status". */
const char* tessera_status_name(tessera_status status);
/** Makes `message` this thread's last error and returns `status`, or TESSERA_ERROR if `status` is
 * TESSERA_OK or unknown. A callback returns the result for a failure of its own. `message` may be
 * NULL. */
tessera_status tessera_fail(tessera_status status, const char* message);
/** Returns from the enclosing function, which returns a tessera_status, if `call` has failed. */
#define TESSERA_TRY(call)                                      \
  do {                                                         \
    const tessera_status tessera_status_ = (call);             \
    if (tessera_status_ != TESSERA_OK) return tessera_status_; \
  } while (0)

/** Returns the library's version, such as "1.2.3". */
const char* tessera_version(void);

/* ------------------------------------------------------------------------------------- words */

/** The kind of a device. */
typedef int32_t tessera_device;
/** Values of tessera_device. */
enum {
  TESSERA_CPU = 0, /**< the host's processor */
  TESSERA_CUDA = 1 /**< a CUDA GPU */
};

/** The transport between ranks; only plans use it. */
typedef int32_t tessera_comm;
/** Values of tessera_comm. */
enum {
  TESSERA_THREADS = 0, /**< the memory of one process, whose threads are the ranks */
  TESSERA_MPI = 1,     /**< MPI, one process a rank */
  TESSERA_NCCL = 2     /**< NCCL, one process and one GPU a rank */
};

/** The type of elements. */
typedef int32_t tessera_dtype;
/** Values of tessera_dtype. */
enum {
  TESSERA_DTYPE_DEFAULT = 0, /**< of a parameter: the model's compute type */
  TESSERA_FP32 = 1,          /**< IEEE binary32, 4 bytes */
  TESSERA_BF16 = 2,          /**< bfloat16, 2 bytes */
  TESSERA_FP16 = 3,          /**< IEEE binary16, 2 bytes */
  TESSERA_FP64 = 4           /**< IEEE binary64, 8 bytes */
};

/** The parts of the training state that each rank keeps (tessera/engine/strategy.hpp). */
typedef int32_t tessera_strategy;
/** Values of tessera_strategy. */
enum {
  TESSERA_DP = 0,    /**< rank 0 keeps everything; other ranks get copies in each step */
  TESSERA_DDP = 1,   /**< every rank keeps everything */
  TESSERA_ZERO1 = 2, /**< the optimizer state is sharded */
  TESSERA_ZERO2 = 3, /**< gradients and optimizer state are sharded */
  TESSERA_ZERO3 = 4, /**< parameters, gradients and optimizer state are sharded */
  TESSERA_HYBRID = 5 /**< zero3 within groups of ranks, each of which keeps a copy */
};
/** Parses "dp", "ddp", "zero1", "zero2", "zero3", "fsdp" or "hybrid" and writes it to `strategy`.
 * TESSERA_CONFIG_ERROR for any other name. */
tessera_status tessera_strategy_from(const char* name, tessera_strategy* strategy);

/** The purpose of memory. */
typedef int32_t tessera_category;
/** Values of tessera_category. */
enum {
  TESSERA_PARAMETERS = 0,   /**< parameters that persist between steps */
  TESSERA_GRADIENTS = 1,    /**< gradients that persist between micro-batches */
  TESSERA_OPTIMIZER = 2,    /**< master weights and the optimizer's state */
  TESSERA_GATHER = 3,       /**< slots for units' gathered parameters */
  TESSERA_REDUCE = 4,       /**< slots for units' gradients before their reduction */
  TESSERA_ACTIVATIONS = 5,  /**< results of forward passes that backward passes need */
  TESSERA_WORKSPACE = 6,    /**< scratch memory of kernels */
  TESSERA_COMMUNICATOR = 7, /**< memory of the communicators */
  TESSERA_CONTEXT = 8,      /**< memory that the process held before the library allocated */
  TESSERA_UNATTRIBUTED = 9  /**< memory in use that no other category explains */
};
/** The length of arrays by category; elements without a category are 0. */
#define TESSERA_MOST_CATEGORIES 16
/** Returns "parameters", "gradients", ..., or NULL if there is no such category. */
const char* tessera_category_name(tessera_category category);

/* ------------------------------------------------------------------------------------- ranks */

/** One rank's view of the job. It ends when the rank's callback returns. */
typedef struct tessera_world tessera_world;

/** The priority of the streams of gathers and reductions, on CUDA. */
enum {
  TESSERA_PRIORITY_USUAL = 0, /**< the priority of computation */
  TESSERA_PRIORITY_HIGH = 1   /**< their thread blocks are scheduled before those of kernels */
};

/** How the ranks of a job are set up (tessera/world/world_options.hpp). */
typedef struct tessera_world_options {
  size_t size;           /**< sizeof the struct */
  tessera_device device; /**< the device of every rank */
  int32_t cuda_ordinal;  /**< the number of a rank's CUDA device; -1: by the rank's place */
  int32_t threads;       /**< compute threads of a rank on the CPU, 1 to 256 */
  int32_t host_threads; /**< threads for an offloaded optimizer on CUDA; 0: its part of the cores */
  int64_t deadline_ms;  /**< the longest time of a collective, in milliseconds */
  uint64_t budget_bytes; /**< the most bytes that a rank may hold; 0: no limit */
  int32_t deterministic; /**< flag: NCCL too adds in a fixed order */
  int32_t reserved;      /**< 0 */
  const char* products;  /**< path of recorded algorithms of cuBLASLt, on CUDA; NULL: none */
  uint64_t attention_workspace_bytes; /**< the most bytes that cuDNN's attention allocates itself */
  int32_t nondeterministic_attention; /**< flag: cuDNN adds attention's gradients in any order */
  int32_t channel_priority;           /**< TESSERA_PRIORITY_... of gathers and reductions */
  int32_t
      nccl_min_ctas; /**< fewest thread blocks of an NCCL collective, 1 to 64; 0: NCCL's choice */
  int32_t nccl_max_ctas; /**< most thread blocks of an NCCL collective, 1 to 64; 0: NCCL's choice */
  int32_t nccl_windows;  /**< flag: register arenas as symmetric windows (NCCL 2.27) */
  int32_t
      spared_multiprocessors; /**< multiprocessors that products leave to collectives, on CUDA */
} tessera_world_options;
/** Sets `options` to the defaults. `size` is sizeof *options. */
tessera_status tessera_world_options_init(tessera_world_options* options, size_t size);

/** Writes the number of ranks of the job that tessera_run would join on devices of this kind, or 0
 * if no launcher has started one. A program calls it before it starts ranks as threads, since every
 * process of a job would start a training of its own. */
tessera_status tessera_launched_ranks(tessera_device device, int32_t* ranks);

/** A rank's program. `user` is the pointer that the run was given. */
typedef tessera_status (*tessera_rank_fn)(tessera_world* world, void* user);

/** Runs `body` as `ranks` threads of this process and returns when all have finished. `options` may
 * be NULL for the defaults. */
tessera_status tessera_run_ranks(int32_t ranks, tessera_rank_fn body, void* user,
                                 const tessera_world_options* options);
/** Runs `body` on this thread as this process's rank of the job that mpirun, srun or torchrun has
 * started; without a job, as the only rank. A process whose run failed must report the error and
 * exit. `options` may be NULL for the defaults. */
tessera_status tessera_run(tessera_rank_fn body, void* user, const tessera_world_options* options);

/** Writes this rank's number, from 0, and the number of ranks. `rank` and `size` may be NULL. */
tessera_status tessera_world_place(tessera_world* world, int32_t* rank, int32_t* size);
/** Writes 0 on a rank that only counts (tessera_plan): its memory must not be touched, and the
 * trainer skips its computation. Writes 1 on all others. */
tessera_status tessera_world_computes(tessera_world* world, int32_t* computes);
/** Writes the cudaStream_t on which parameters are ready and kernels must run. On a CPU it writes
 * NULL: there the calling thread computes. */
tessera_status tessera_world_stream(tessera_world* world, void** stream);
/** Collective: returns when every rank has made this call. */
tessera_status tessera_barrier(tessera_world* world);
/** Collective: writes the sum of `value` over the ranks, added in rank order. */
tessera_status tessera_sum(tessera_world* world, double value, double* sum);
/** Ends the job because this rank cannot go on: pending and later calls of all ranks fail with
 * `reason`. Any thread may call it. */
tessera_status tessera_abort(tessera_world* world, const char* reason);

/* ------------------------------------------------------------------------------------ memory */

/** One rank's memory now and at its peak, in bytes. Arrays are indexed by tessera_category. */
typedef struct tessera_memory_report {
  size_t size;              /**< sizeof the struct */
  uint64_t live_bytes;      /**< the total now */
  uint64_t peak_bytes;      /**< the highest total */
  uint64_t host_peak_bytes; /**< the peak of host memory for state that is moved off the device */
  uint64_t allocations;     /**< number of allocations so far */
  uint64_t live[TESSERA_MOST_CATEGORIES];    /**< the bytes now */
  uint64_t at_peak[TESSERA_MOST_CATEGORIES]; /**< the bytes when the total first was the highest */
} tessera_memory_report;
/** Writes this rank's memory now. The caller sets report->size. */
tessera_status tessera_memory(tessera_world* world, tessera_memory_report* report);

/** Memory of the trainer that reports and the budget count. */
typedef struct tessera_registration tessera_registration;
/** Counts `bytes` that the trainer allocated itself, until tessera_unregister_memory or the rank's
 * end. `name` appears in errors. `registration` may be NULL. TESSERA_OUT_OF_MEMORY beyond the
 * budget. */
tessera_status tessera_register_memory(tessera_world* world, tessera_category category,
                                       uint64_t bytes, const char* name,
                                       tessera_registration** registration);
/** Stops counting registered memory. */
tessera_status tessera_unregister_memory(tessera_registration* registration);
/** Allocates counted device memory, aligned to 128 bytes, contents undefined, and writes its
 * address. TESSERA_OUT_OF_MEMORY if the budget or the device has no room. */
tessera_status tessera_allocate(tessera_world* world, tessera_category category, uint64_t bytes,
                                const char* name, void** address);
/** Frees memory that tessera_allocate of this rank returned. `address` may be NULL: then nothing
 * happens. */
tessera_status tessera_free(tessera_world* world, void* address);

/** The job and the rank that tessera_plan simulates. */
typedef struct tessera_plan_options {
  size_t size;       /**< sizeof the struct */
  int32_t ranks;     /**< the number of ranks of the job */
  int32_t rank;      /**< the rank that is counted; strategies treat all but rank 0 alike */
  tessera_comm comm; /**< the transport between the ranks */
  int32_t reserved;  /**< 0 */
  const tessera_world_options* world; /**< the ranks' options with their device; may be NULL */
} tessera_plan_options;
/** Sets `options` to the defaults. `size` is sizeof *options. */
tessera_status tessera_plan_options_init(tessera_plan_options* options, size_t size);
/** Counts to the byte what `body` would hold as one rank of a job: runs it on this thread, on a
 * device that only counts. A body that makes one step allocates all that a run ever allocates.
 * `options` may be NULL for the defaults. */
tessera_status tessera_plan(const tessera_plan_options* options, tessera_rank_fn body, void* user,
                            tessera_memory_report* report);

/* ------------------------------------------------------------------------------------- model */

/** A model whose parameters, gradients and optimizer state are sharded over the ranks:
 * declared --materialize--> ready --optimize_with--> trainable. Every call is made by all ranks, in
 * the same order with the same units. */
typedef struct tessera_model tessera_model;
/** A unit of a model; 0 is none. */
typedef uint64_t tessera_unit;

/** How the loss scale changes from step to step. */
enum {
  TESSERA_SCALE_AUTOMATIC = 0, /**< dynamic with fp16, else off */
  TESSERA_SCALE_OFF = 1,       /**< the scale is 1 */
  TESSERA_SCALE_DYNAMIC = 2,   /**< falls with each skipped step, grows after many good steps */
  TESSERA_SCALE_FIXED = 3      /**< the scale is always loss_scale_initial */
};
/** How thoroughly a model checks its trainer for mistakes (docs/checks.md). */
enum {
  TESSERA_CHECKS_OFF = 0,    /**< no further checks */
  TESSERA_CHECKS_STRICT = 1, /**< missing backward scopes */
  TESSERA_CHECKS_MEMORY = 2  /**< late and stray accesses and the first NaN too; slow */
};
/** When the gradients of several micro-batches are reduced. */
enum {
  TESSERA_REDUCE_AUTOMATIC = 0, /**< every for zero2, zero3 and hybrid, else deferred */
  TESSERA_REDUCE_EVERY =
      1, /**< in each micro-batch; with zero2 and above, no full gradients are kept */
  TESSERA_REDUCE_DEFERRED = 2 /**< once, with the last micro-batch: full gradients are kept */
};
/** When a block gives its gathered parameters back. */
enum {
  TESSERA_RESHARD_AFTER_FORWARD = 0, /**< after each use: least memory, two gathers */
  TESSERA_RESHARD_AFTER_BACKWARD = 1 /**< after its last use in a micro-batch: one gather */
};
/** Whether units may be kept whole although the strategy shards them. */
enum {
  TESSERA_WHOLE_AUTOMATIC = 0,    /**< never */
  TESSERA_WHOLE_NEVER = 1,        /**< every unit is sharded */
  TESSERA_WHOLE_WHERE_SMALLER = 2 /**< where its shard and its slot would take more memory */
};
/** The state that is kept in host memory instead of device memory. */
enum {
  TESSERA_OFFLOAD_NONE = 0,      /**< none */
  TESSERA_OFFLOAD_OPTIMIZER = 1, /**< master weights and optimizer state; the host updates */
  TESSERA_OFFLOAD_STATE = 2      /**< the same between updates; the device updates */
};

/** How a model keeps its state, computes and is trained. tessera/engine/model_options.hpp has the
 * meaning and the range of each member. Flags are 0 or 1. */
typedef struct tessera_model_options {
  size_t size;               /**< sizeof the struct */
  tessera_strategy strategy; /**< the parts of the state that each rank keeps */
  int32_t shard_group;       /**< ranks that share one copy under hybrid; 0: those of a machine */
  tessera_dtype compute;     /**< type of parameters and of what is computed with them */
  int32_t accumulate;        /**< micro-batches in a step, 1 or more */
  int32_t checks;            /**< TESSERA_CHECKS_OFF, ... */
  int32_t inference;         /**< flag: the model is only evaluated */
  int32_t remainders;        /**< flag: fp32 masters of bf16 parameters are kept as remainders */
  tessera_dtype gradient;    /**< type in which gradients are accumulated */
  tessera_dtype reduce;      /**< type in which gradients are reduced */
  int32_t loss_scaling;      /**< TESSERA_SCALE_AUTOMATIC, ... */
  float loss_scale_initial;  /**< the scale of the first step */
  float loss_scale_growth;   /**< the factor after loss_scale_growth_interval good steps */
  float loss_scale_backoff;  /**< the factor after a skipped step */
  float loss_scale_minimum;  /**< the smallest scale */
  int64_t loss_scale_growth_interval; /**< good steps before the scale grows */
  int64_t max_skips;                  /**< skipped steps in a row that end the run; 0: no limit */
  int32_t prefetch;                   /**< blocks that are gathered ahead, 0 to 1024 */
  int32_t prefetch_backward;          /**< the same for backward passes; -1: as `prefetch` */
  int32_t reshard;                    /**< TESSERA_RESHARD_AFTER_FORWARD, ... */
  int32_t accumulate_mode;            /**< TESSERA_REDUCE_AUTOMATIC, ... */
  int64_t persist_elems;       /**< units of at most this many elements stay gathered; 0: none */
  uint64_t bucket_bytes;       /**< bytes of gradients that ddp reduces together */
  uint64_t first_bucket_bytes; /**< the same for the first bucket of a backward pass */
  int32_t offload;             /**< TESSERA_OFFLOAD_NONE, ... */
  float offload_keep;          /**< fraction of the state that stays on the device, 0 to below 1 */
  int64_t align_elems;         /**< elements at whose multiples parameters and shards begin */
  int32_t mesh_replicate;      /**< ranks along `replicate`; 0, as mesh_shard: no mesh is given */
  int32_t mesh_shard;          /**< ranks along `shard`; 0, as mesh_replicate: no mesh is given */
  int32_t keep_whole;          /**< TESSERA_WHOLE_AUTOMATIC, ... */
  int32_t reserved;            /**< 0 */
} tessera_model_options;
/** Sets `options` to the defaults. `size` is sizeof *options. */
tessera_status tessera_model_options_init(tessera_model_options* options, size_t size);

/** The most extents of a parameter. */
#define TESSERA_MOST_DIMS 8
/** A declared parameter: {.name = "weight", .dims = 2, .shape = {out, in}}. */
typedef struct tessera_parameter_spec {
  const char* name;                 /**< unique in its unit */
  int32_t dims;                     /**< the number of extents; 0: a scalar */
  int32_t frozen;                   /**< flag: not trained, without gradient and optimizer state */
  int64_t shape[TESSERA_MOST_DIMS]; /**< the extents, outermost first */
  tessera_dtype dtype;   /**< type of the parameter; TESSERA_DTYPE_DEFAULT: the model's */
  int32_t reserved_flag; /**< 0 */
  const char* tied_unit; /**< NULL, or the earlier unit of the parameter that this is an alias of */
  const char* tied_parameter; /**< the name of that parameter in tied_unit; else NULL */
  int64_t room;               /**< the least number of elements that its place holds */
  int64_t reserved[4];        /**< 0 */
} tessera_parameter_spec;

/** How a unit is kept (tessera/engine/unit.hpp). */
typedef struct tessera_unit_options {
  size_t size;                /**< sizeof the struct */
  int32_t root;               /**< flag: used outside the repeated blocks, with its own slot */
  int32_t gradients_unzeroed; /**< flag: backward overwrites gradients instead of adding to them */
  int32_t reshard;            /**< TESSERA_RESHARD_AFTER_FORWARD, ...; -1: as the model */
  int32_t reserved;           /**< 0 */
} tessera_unit_options;
/** Sets `options` to the defaults. `size` is sizeof *options. */
tessera_status tessera_unit_options_init(tessera_unit_options* options, size_t size);

/** A parameter as callbacks see it. The library owns it; it is valid during the call. */
typedef struct tessera_parameter_info {
  const char* unit;      /**< the name of its unit */
  const char* name;      /**< the name in its unit */
  const char* full_name; /**< "unit.name" */
  const int64_t* shape;  /**< `dims` extents, outermost first */
  int32_t dims;          /**< the number of extents */
  int32_t trainable;     /**< flag: not frozen */
  int64_t elems;         /**< the number of elements */
  uint32_t id;           /**< the index in the order of declaration, without aliases */
} tessera_parameter_info;

/** Creates a model without units and writes it to `model`. `options` may be NULL for the defaults.
 */
tessera_status tessera_model_create(tessera_world* world, const tessera_model_options* options,
                                    tessera_model** model);
/** Ends the model. TESSERA_CONTRACT_ERROR while a scope or an evaluation is open. */
tessera_status tessera_model_destroy(tessera_model* model);
/** Declares a unit of `count` parameters, before tessera_materialize, and writes it to `unit`.
 * `name` is unique in the model. `options` may be NULL for the defaults. */
tessera_status tessera_add_unit(tessera_model* model, const char* name,
                                const tessera_parameter_spec* parameters, size_t count,
                                const tessera_unit_options* options, tessera_unit* unit);
/** Declares that every forward pass opens exactly these units in this order, and every backward
 * pass opens them in reverse. Optional; before tessera_materialize. */
tessera_status tessera_declare_order(tessera_model* model, const tessera_unit* units, size_t count);

/** Writes the initial values of elements [first, first + count) of a parameter to `out`, in host
 * memory. A value depends on the element only: each rank asks for the elements that it keeps. */
typedef tessera_status (*tessera_initializer_fn)(const tessera_parameter_info* parameter,
                                                 int64_t first, int64_t count, float* out,
                                                 void* user);
/** Collective: lays out and allocates the parameters, with initial values of `initial`. */
tessera_status tessera_materialize(tessera_model* model, tessera_initializer_fn initial,
                                   void* user);
/** Collective: lays out and allocates the parameters, with initial values from N(0, stddev^2). */
tessera_status tessera_materialize_normal(tessera_model* model, uint64_t seed, float stddev);
/** Collective: lays out and allocates the parameters, with all elements set to `value`. */
tessera_status tessera_materialize_constant(tessera_model* model, float value);
/** Writes the values from N(0, stddev^2) that tessera_materialize_normal gives elements [first,
 * first + count) of parameter `id` to `out`, in host memory. It is meant for initialisers that
 * treat some parameters differently. */
tessera_status tessera_fill_normal(uint64_t seed, uint32_t id, int64_t first, int64_t count,
                                   float stddev, float* out);

/** Update rules (tessera/base/update_rule.hpp has the formulas). */
enum {
  TESSERA_ADAMW = 0, /**< AdamW: weight decay is decoupled */
  TESSERA_ADAM = 1,  /**< Adam: weight decay is added to the gradient */
  TESSERA_SGD = 2,   /**< stochastic gradient descent with momentum */
  TESSERA_LION = 3   /**< Lion: the sign of the update direction */
};
/** Storage formats of the optimizer's moments. */
enum {
  TESSERA_MOMENTS_FP32 = 0, /**< 4 bytes an element */
  TESSERA_MOMENTS_BF16 = 1, /**< 2 bytes an element */
  TESSERA_MOMENTS_INT8 = 2  /**< 8-bit codes, a scale for 256; needs align_elems 256 in the model */
};
/** Returns 1 if a parameter decays, else 0: the same on every rank. `name` is "unit.name". */
typedef int32_t (*tessera_decays_fn)(const char* name, const int64_t* shape, int32_t dims,
                                     void* user);
/** Returns 1 if a parameter belongs to a group, else 0: the same on every rank. */
typedef int32_t (*tessera_chooses_fn)(const tessera_parameter_info* parameter, void* user);
/** A group of parameters with its own rate and decay. A parameter belongs to the first group that
 * chooses it. */
typedef struct tessera_parameter_group {
  const char* name;           /**< the name in errors; not empty */
  tessera_chooses_fn chooses; /**< chooses the parameters of the group; not NULL */
  void* user;                 /**< passed to `chooses` */
  float lr_scale;             /**< the factor of the rate, 0 or more; 1 keeps the rate */
  int32_t has_weight_decay;   /**< flag: `weight_decay` replaces the optimizer's */
  float weight_decay;         /**< the decay of all parameters of the group, 0 or more */
  int32_t reserved_flag;      /**< 0 */
  int64_t reserved[3];        /**< 0 */
} tessera_parameter_group;
/** An update rule and its options (tessera/optim/optimizer.hpp). */
typedef struct tessera_optimizer_options {
  size_t size;                  /**< sizeof the struct */
  int32_t rule;                 /**< TESSERA_ADAMW, ... */
  float lr;                     /**< the learning rate, 0 or more */
  float beta1;                  /**< of Adam, AdamW and Lion, in [0, 1) */
  float beta2;                  /**< of Adam, AdamW and Lion, in [0, 1) */
  float eps;                    /**< of Adam and AdamW, above 0 */
  float weight_decay;           /**< the decay of parameters that decay, 0 or more */
  float momentum;               /**< of SGD, in [0, 1) */
  float clip_norm;              /**< the greatest norm of the gradient; 0: it is not clipped */
  int32_t moments;              /**< TESSERA_MOMENTS_FP32, ... */
  int32_t round_stochastically; /**< flag: for 16-bit parameters and moments */
  uint64_t rounding_seed;       /**< the seed of stochastic rounding */
  tessera_decays_fn decays;     /**< NULL: parameters of two or more extents decay */
  void* decays_user;            /**< passed to `decays` */
  const tessera_parameter_group* groups; /**< group_count groups; NULL if there are none */
  size_t group_count;                    /**< the number of groups */
} tessera_optimizer_options;
/** Sets `options` to the defaults of `rule`. `size` is sizeof *options. */
tessera_status tessera_optimizer_options_init(tessera_optimizer_options* options, size_t size,
                                              int32_t rule);
/** Collective: allocates and zeroes the optimizer's state. It is called once. */
tessera_status tessera_optimize_with(tessera_model* model,
                                     const tessera_optimizer_options* options);

/* ------------------------------------------------------------------------------------ scopes */

/** An open use of a unit, during which its parameters (in backward, its gradients too) are whole on
 * this rank. */
typedef struct tessera_scope tessera_scope;

/** Opens a unit for its forward pass and writes the scope. TESSERA_CONTRACT_ERROR if the unit is
 * open already or open scopes hold all slots. */
tessera_status tessera_forward(tessera_model* model, tessera_unit unit, tessera_scope** scope);
/** Opens a unit for its backward pass, as many times in a micro-batch as its forward pass, and
 * writes the scope. TESSERA_CONTRACT_ERROR if its gradients need a slot and none is free. */
tessera_status tessera_backward(tessera_model* model, tessera_unit unit, tessera_scope** scope);
/** Opens a unit for the forward pass of micro-batch `micro_batch` of the step, from 0, for steps
 * with several micro-batches in flight. */
tessera_status tessera_forward_of(tessera_model* model, tessera_unit unit, int32_t micro_batch,
                                  tessera_scope** scope);
/** Opens a unit for the backward pass of micro-batch `micro_batch` of the step, from 0, for steps
 * with several micro-batches in flight. */
tessera_status tessera_backward_of(tessera_model* model, tessera_unit unit, int32_t micro_batch,
                                   tessera_scope** scope);
/** Writes the device address of a parameter's first element, valid until the scope is closed.
 * TESSERA_CONTRACT_ERROR if its elements are not of type `dtype`. */
tessera_status tessera_parameter(tessera_scope* scope, const char* name, tessera_dtype dtype,
                                 const void** data);
/** Writes the device address of the first element of a gradient, to which the trainer adds, valid
 * until the scope is closed. TESSERA_CONTRACT_ERROR if its elements are not of type `dtype`, in a
 * forward scope, and for a frozen parameter. */
tessera_status tessera_gradient(tessera_scope* scope, const char* name, tessera_dtype dtype,
                                void** data);
/** Writes 1 if the parameter is trained, else 0. TESSERA_CONTRACT_ERROR in a forward scope. */
tessera_status tessera_has_gradient(tessera_scope* scope, const char* name, int32_t* has);
/** Names the output of a forward scope, in device memory that stays valid until the scope is
 * closed, so that an error can name the unit in which values first were not finite. */
tessera_status tessera_watch(tessera_scope* scope, const void* data, int64_t elems,
                             tessera_dtype dtype);
/** Ends the scope: parameters are given back, gradients are reduced. */
tessera_status tessera_close(tessera_scope* scope);

/** DLPack's tensor, of its own header dlpack.h or of tessera/dlpack.h. */
struct DLManagedTensor;
/** Writes a DLPack view of a parameter, on the CPU or CUDA. The view's owner, which is the caller
 * or the library that takes it over, calls its deleter, on any thread. The parameter must only be
 * read; DLPack has no flag for that before version 1. On CUDA the values are ready on
 * tessera_world_stream.
 *
 * The values are valid until the scope is closed. While a view is held, tessera_close is refused
 * with TESSERA_CONTRACT_ERROR, and the scope stays open. If the rank ends before, the memory stays
 * until the last view of the model is deleted, with undefined values. */
tessera_status tessera_parameter_dlpack(tessera_scope* scope, const char* name,
                                        struct DLManagedTensor** tensor);
/** Writes a DLPack view of a gradient, which may be read and written. Otherwise it is like
 * tessera_parameter_dlpack. */
tessera_status tessera_gradient_dlpack(tessera_scope* scope, const char* name,
                                       struct DLManagedTensor** tensor);

/** An evaluation of a model. While it is open all scopes are forward scopes, in any number of
 * passes. */
typedef struct tessera_evaluation tessera_evaluation;
/** Collective: begins an evaluation, between steps. */
tessera_status tessera_evaluate(tessera_model* model, tessera_evaluation** evaluation);
/** Ends a pass. TESSERA_CONTRACT_ERROR if a scope is open. */
tessera_status tessera_end_pass(tessera_evaluation* evaluation);
/** Ends the last pass and the evaluation. */
tessera_status tessera_end_evaluation(tessera_evaluation* evaluation);

/* -------------------------------------------------------------------------------------- step */

/** The results of one step, the same on every rank. */
typedef struct tessera_step_report {
  size_t size;              /**< sizeof the struct */
  int64_t step;             /**< the number of the step, from 1 */
  double loss;              /**< the mean over ranks of the losses given to tessera_step */
  double grad_norm;         /**< the L2 norm of the averaged gradient, before clipping */
  float clip_coefficient;   /**< the factor that clipping applied; 1 if it did not */
  float lr;                 /**< the learning rate, without the factors of groups */
  float loss_scale;         /**< the loss scale of this step */
  float next_loss_scale;    /**< the loss scale of the next step */
  int64_t skipped_in_a_row; /**< steps skipped in a row, up to this one */
  int32_t skipped;          /**< flag: the gradient was not finite, and nothing was updated */
  int32_t reserved;         /**< 0 */
} tessera_step_report;

/** Collective: averages the gradients, clips them and updates the parameters. `loss` is the device
 * address of this rank's mean loss. `loss` may be NULL. All ranks give one, or none. */
tessera_status tessera_step(tessera_model* model, const double* loss);
/** Collective: does what tessera_step does for a loss that does not count every token. The trainer
 * sums over the tokens that count. It divides the gradient of each micro-batch by one number D, the
 * same for all micro-batches and ranks, such as the number of all tokens of a micro-batch; and its
 * loss, the sum over the micro-batches, by `of` = D * accumulate. The step makes both means over
 * the tokens that all ranks counted together. `counted` is the device address of the number of this
 * rank's tokens that counted. `loss` and `counted` may be NULL, on a rank that gives no loss. `of`
 * is above 0, finite and the same on all ranks. */
tessera_status tessera_step_counted(tessera_model* model, const double* loss, const double* counted,
                                    double of);
/** Writes the device address of the factor by which the trainer multiplies the gradient of its
 * loss; NULL, which means 1, before tessera_optimize_with. */
tessera_status tessera_loss_scale(tessera_model* model, const float** scale);
/** Sets the learning rate of the next and all later steps, the same on all ranks. */
tessera_status tessera_set_learning_rate(tessera_model* model, float lr);
/** Leaves a trained parameter as it is until tessera_unfreeze: no step between moves its value or
 * its optimizer state, and tessera_has_gradient writes 0. All ranks freeze the same.
 * TESSERA_CONTRACT_ERROR for a parameter that was declared frozen, and while a step is under way in
 * which its gradient was handed out. */
tessera_status tessera_freeze(tessera_model* model, tessera_unit unit, const char* name);
/** Trains a parameter again that tessera_freeze has frozen. TESSERA_CONTRACT_ERROR as for
 * tessera_freeze. */
tessera_status tessera_unfreeze(tessera_model* model, tessera_unit unit, const char* name);
/** Waits for the last step and writes its report. The caller sets report->size. */
tessera_status tessera_report(tessera_model* model, tessera_step_report* report);
/** Writes the report of the step before the last, without waiting for the last. The caller sets
 * report->size. */
tessera_status tessera_previous_report(tessera_model* model, tessera_step_report* report);
/** Writes the number of steps made, including those before the checkpoint that was loaded. */
tessera_status tessera_steps(tessera_model* model, int64_t* steps);

/** A callback that receives a whole parameter or gradient, widened to fp32: `count` values in host
 * memory that is valid during the call. */
typedef tessera_status (*tessera_sink_fn)(const tessera_parameter_info* parameter,
                                          const float* values, int64_t count, void* user);
/** Collective: calls `sink` on every rank with each whole parameter (TESSERA_PARAMETERS, between
 * steps) or gradient (TESSERA_GRADIENTS, between the last micro-batch and tessera_step). */
tessera_status tessera_export_state(tessera_model* model, tessera_category what,
                                    tessera_sink_fn sink, void* user);

/* ------------------------------------------------------------------------------- checkpoints */

/** Returns the name of a parameter in files, valid until the next call. It is unique. */
typedef const char* (*tessera_name_fn)(const tessera_parameter_info* parameter, void* user);
/** A value of the trainer that a checkpoint holds, such as its position in the data. */
typedef struct tessera_value {
  const char* name; /**< unique in the checkpoint; not empty */
  const char* text; /**< the value */
} tessera_value;
/** A callback that receives a value of a checkpoint. */
typedef tessera_status (*tessera_value_fn)(const char* name, const char* text, void* user);

/** How a checkpoint is written. */
typedef struct tessera_save_options {
  size_t size;                 /**< sizeof the struct */
  const tessera_value* values; /**< value_count values, the same on all ranks */
  size_t value_count;          /**< the number of values */
  tessera_name_fn name;        /**< returns names in files; NULL: "unit.name" */
  void* name_user;             /**< passed to `name` */
  uint64_t shard_bytes;        /**< the most bytes of tensors in a file */
} tessera_save_options;
/** Sets `options` to the defaults. `size` is sizeof *options. */
tessera_status tessera_save_options_init(tessera_save_options* options, size_t size);
/** Collective: writes the whole training state to `folder`/step-N (docs/checkpoints.md). The folder
 * appears complete or not at all. It is called between steps. `options` may be NULL. */
tessera_status tessera_save(tessera_model* model, const char* folder,
                            const tessera_save_options* options);
/** Writes the path of the newest complete checkpoint in `folder`, of at most `size` bytes with the
 * terminating 0, and its step. `step` may be NULL. */
tessera_status tessera_newest_checkpoint(const char* folder, char* path, size_t size,
                                         int64_t* step);

/** How a checkpoint is loaded. */
typedef struct tessera_load_options {
  size_t size;             /**< sizeof the struct */
  int32_t weights_only;    /**< flag: the optimizer starts anew */
  int32_t convert_moments; /**< flag: moments of another format are converted, not refused */
  tessera_name_fn name;    /**< returns names in files; NULL: "unit.name" */
  void* name_user;         /**< passed to `name` */
  tessera_value_fn value;  /**< called with each value once the model is loaded; may be NULL */
  void* value_user;        /**< passed to `value` */
  int32_t allow_partial;   /**< flag: allows weights that only one side has */
  int32_t reserved;        /**< 0 */
} tessera_load_options;
/** Sets `options` to the defaults. `size` is sizeof *options. */
tessera_status tessera_load_options_init(tessera_load_options* options, size_t size);
/** Collective: fills the model from the checkpoint at `path`, on any number of ranks and under any
 * strategy. TESSERA_FORMAT_ERROR that names them if weights of the model are not in the files, or
 * the reverse, unless allow_partial is set. `options` may be NULL. */
tessera_status tessera_load(tessera_model* model, const char* path,
                            const tessera_load_options* options);

/** Collective: writes every parameter to `path` on rank 0 (safetensors, fp32). `name` may be NULL
 * for "unit.name". */
tessera_status tessera_save_weights(tessera_model* model, const char* path, tessera_name_fn name,
                                    void* user);
/** Collective: lays out and allocates the parameters, with the weights in `path`: a safetensors
 * file, an index or a checkpoint's folder. `name` may be NULL for "unit.name". */
tessera_status tessera_materialize_from(tessera_model* model, const char* path,
                                        tessera_name_fn name, void* user);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif /* TESSERA_C_H */
