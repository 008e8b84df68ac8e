// cuDNN's graph API, opened at run time: operations on tensors become one execution plan, which runs on a
// stream. Only for sources compiled with the headers of cuDNN.
#pragma once

#include <cudnn.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "cuda/library.h"
#include "lab/problem.h"

namespace fathom::lab {

class CudnnGraph {
 public:
  using Extents = std::vector<int64_t>;
  struct Tensor {
    cudnnBackendDescriptor_t descriptor;
    int64_t id;
    Extents extents;
  };

  // Throws Unavailable where cuDNN does not load.
  CudnnGraph() : library_(opened()) {
    fetch(create_, "cudnnBackendCreateDescriptor");
    fetch(destroy_, "cudnnBackendDestroyDescriptor");
    fetch(set_, "cudnnBackendSetAttribute");
    fetch(get_, "cudnnBackendGetAttribute");
    fetch(finalize_, "cudnnBackendFinalize");
    fetch(execute_, "cudnnBackendExecute");
    fetch(set_stream_, "cudnnSetStream");
    fetch(destroy_handle_, "cudnnDestroy");
    fetch(words_, "cudnnGetErrorString");
    decltype(&::cudnnGetVersion) version = nullptr;
    fetch(version, "cudnnGetVersion");
    version_                        = static_cast<int64_t>(version());
    decltype(&::cudnnCreate) create = nullptr;
    fetch(create, "cudnnCreate");
    check(create(&handle_), "cudnnCreate");
  }
  ~CudnnGraph() {
    for (auto owned = owned_.rbegin(); owned != owned_.rend(); ++owned) (void)destroy_(*owned);
    (void)destroy_handle_(handle_);
  }
  CudnnGraph(const CudnnGraph&)            = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;

  int64_t version() const { return version_; }  // 91900 is 9.19.0

  // In memory; run() is told where.
  Tensor tensor(const Extents& extents, const Extents& strides, cudnnDataType_t type) {
    return make_tensor(extents, strides, type, false, false);
  }
  // A constant of the graph.
  Tensor scalar(std::variant<float, int32_t> value) {
    const bool real = std::holds_alternative<float>(value);
    const Tensor tensor =
        make_tensor({1, 1, 1, 1}, {1, 1, 1, 1}, real ? CUDNN_DATA_FLOAT : CUDNN_DATA_INT32, false, true);
    scalars_.emplace_back(tensor.id, value);
    return tensor;
  }

  // `type`: of the result, which is not in memory. `compute`: of the operation.
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, std::optional<Tensor> b = std::nullopt,
                   cudnnDataType_t type = CUDNN_DATA_FLOAT, cudnnDataType_t compute = CUDNN_DATA_FLOAT) {
    return pointwise(mode, x, b, std::nullopt, std::nullopt, type, compute);
  }
  // What one operation hands to the next.
  Tensor result(const Extents& extents, cudnnDataType_t type) {
    Extents strides(extents.size(), 1);
    for (size_t i = extents.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * extents[i];
    return make_tensor(extents, strides, type, true, false);
  }
  // The same with a result in memory.
  void pointwise_to(cudnnPointwiseMode_t mode, const Tensor& x, const std::optional<Tensor>& b,
                    const Tensor& y) {
    pointwise_to(mode, x, b, std::nullopt, std::nullopt, CUDNN_DATA_FLOAT, y);
  }
  // The index of each element along an axis.
  Tensor index(const Tensor& like, int64_t axis) {
    return pointwise(CUDNN_POINTWISE_GEN_INDEX, like, std::nullopt, std::nullopt, axis, CUDNN_DATA_INT32,
                     CUDNN_DATA_FLOAT);
  }
  // x where the mask holds, else `otherwise`.
  Tensor select(const Tensor& mask, const Tensor& x, const Tensor& otherwise) {
    return pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, otherwise, mask, std::nullopt, CUDNN_DATA_FLOAT,
                     CUDNN_DATA_FLOAT);
  }
  // Over the last axis.
  Tensor reduce(cudnnReduceTensorOp_t op, const Tensor& x) {
    Extents extents = x.extents;
    extents.back()  = 1;
    const Tensor y  = result(extents, CUDNN_DATA_FLOAT);
    reduce_to(op, x, y);
    return y;
  }
  // Over the axes along which y is shorter.
  void reduce_to(cudnnReduceTensorOp_t op, const Tensor& x, const Tensor& y) {
    const auto how = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
    set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    finalize(how);
    const auto operation = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, how);
    add(operation);
  }
  // The same elements with other extents, strides or type; a transposed one where two of them swap.
  Tensor reshape(const Tensor& x, const Extents& extents, const Extents& strides, cudnnDataType_t type) {
    const Tensor y       = make_tensor(extents, strides, type, true, false);
    const auto operation = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(operation);
    return y;
  }
  void matmul(const Tensor& a, const Tensor& b, const Tensor& c) {
    const auto how = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    finalize(how);
    const auto operation = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, how);
    add(operation);
  }
  Tensor matmul(const Tensor& a, const Tensor& b, const Extents& extents) {
    const Tensor c = result(extents, CUDNN_DATA_FLOAT);
    matmul(a, b, c);
    return c;
  }
  void rms_norm(const Tensor& x, const Tensor& weight, const Tensor& epsilon, const Tensor& y) {
    const auto operation = make(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    set(operation, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_RMS_NORM);
    set(operation, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, CUDNN_NORM_FWD_INFERENCE);
    set(operation, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x);
    set(operation, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, weight);
    set(operation, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, epsilon);
    set(operation, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, y);
    add(operation);
  }

  // Takes the first plan of cuDNN's heuristics that this GPU supports. Throws Unavailable where there is
  // none for `what`.
  void build(const std::string& what) {
    const auto graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_);
    finalize(graph);
    const auto heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    finalize(heuristics);
    int64_t count = 0, found = 0;
    check(get_(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
          "cudnnBackendGetAttribute");
    std::vector<cudnnBackendDescriptor_t> configurations;
    for (int64_t i = 0; i < count; ++i) configurations.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    check(get_(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &found,
               configurations.data()),
          "cudnnBackendGetAttribute");
    for (int64_t i = 0; i < found; ++i) {
      const auto plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_);
      set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
          configurations[static_cast<size_t>(i)]);
      if (finalize_(plan) != CUDNN_STATUS_SUCCESS) continue;
      int64_t bytes = 0, one = 0;
      check(get_(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &one, &bytes),
            "cudnnBackendGetAttribute");
      workspace_ = DeviceBuffer<uint8_t>(*find_device({0}), bytes);
      plan_      = plan;
      return;
    }
    throw Unavailable("needs_library", "a cuDNN with a plan for " + what + "; this is " + library_.path);
  }

  // Enqueues the plan. `where`: the memory of every tensor().
  void run(StreamRef stream, std::initializer_list<std::pair<Tensor, const void*>> where) const {
    std::vector<int64_t> ids;
    std::vector<void*> pointers;
    for (const auto& [tensor, memory] : where) {
      ids.push_back(tensor.id);
      pointers.push_back(const_cast<void*>(memory));
    }
    for (const auto& [id, value] : scalars_) {
      ids.push_back(id);
      pointers.push_back(
          std::visit([](const auto& v) { return const_cast<void*>(static_cast<const void*>(&v)); }, value));
    }
    cudnnBackendDescriptor_t pack = nullptr;
    check(create_(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), "cudnnBackendCreateDescriptor");
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, static_cast<void*>(workspace_.data()));
    finalize(pack);
    check(set_stream_(handle_, stream), "cudnnSetStream");
    const cudnnStatus_t status = execute_(handle_, plan_, pack);
    (void)destroy_(pack);
    check(status, "cudnnBackendExecute");
  }

 private:
  static CudaLibrary opened() {
    const auto library = open_cuda_library("cudnn", CUDNN_MAJOR);
    if (!library) throw Unavailable("needs_library", library.error().message);
    return *library;
  }
  template <class Function>
  void fetch(Function& function, const char* name) const {
    function = library_.function<Function>(name);
    if (!function) throw Unavailable("needs_library", library_.path + " has no " + name);
  }
  void check(cudnnStatus_t status, const char* call) const {
    FATHOM_EXPECT(status == CUDNN_STATUS_SUCCESS, std::string(call) + ": " + words_(status));
  }

  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    check(create_(type, &made), "cudnnBackendCreateDescriptor");
    owned_.push_back(made);
    return made;
  }
  template <class T>
  void set(cudnnBackendDescriptor_t on, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const T& value) const {
    check(set_(on, name, type, 1, &value), "cudnnBackendSetAttribute");
  }
  template <class T>
  void set(cudnnBackendDescriptor_t on, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const std::vector<T>& values) const {
    check(set_(on, name, type, static_cast<int64_t>(values.size()), values.data()),
          "cudnnBackendSetAttribute");
  }
  void set(cudnnBackendDescriptor_t on, cudnnBackendAttributeName_t name, const Tensor& tensor) const {
    set(on, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, tensor.descriptor);
  }
  void finalize(cudnnBackendDescriptor_t descriptor) const {
    check(finalize_(descriptor), "cudnnBackendFinalize");
  }
  void add(cudnnBackendDescriptor_t operation) {
    finalize(operation);
    operations_.push_back(operation);
  }

  Tensor make_tensor(const Extents& extents, const Extents& strides, cudnnDataType_t type, bool is_virtual,
                     bool by_value) {
    const Tensor tensor{make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), ++ids_, extents};
    const auto on = tensor.descriptor;
    set(on, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    set(on, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, extents);
    set(on, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
    set(on, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, tensor.id);
    set(on, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
    set(on, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
    set(on, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
    finalize(on);
    return tensor;
  }
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const std::optional<Tensor>& b,
                   const std::optional<Tensor>& t, std::optional<int64_t> axis, cudnnDataType_t type,
                   cudnnDataType_t compute) {
    // A row's value with a head's constant is a row's value.
    Extents extents = x.extents;
    for (size_t i = 0; b && i < extents.size(); ++i) extents[i] = std::max(extents[i], b->extents[i]);
    const Tensor y = result(extents, type);
    pointwise_to(mode, x, b, t, axis, compute, y);
    return y;
  }
  void pointwise_to(cudnnPointwiseMode_t mode, const Tensor& x, const std::optional<Tensor>& b,
                    const std::optional<Tensor>& t, std::optional<int64_t> axis, cudnnDataType_t compute,
                    const Tensor& y) {
    const auto how = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute);
    if (axis) set(how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, *axis);
    finalize(how);
    const auto operation = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, how);
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) set(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    if (t) set(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *t);
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(operation);
  }

  CudaLibrary library_;
  int64_t version_      = 0;
  cudnnHandle_t handle_ = nullptr;
  int64_t ids_          = 0;
  std::vector<cudnnBackendDescriptor_t> owned_, operations_;
  std::vector<std::pair<int64_t, std::variant<float, int32_t>>> scalars_;
  cudnnBackendDescriptor_t plan_ = nullptr;
  DeviceBuffer<uint8_t> workspace_;

  decltype(&::cudnnBackendCreateDescriptor) create_   = nullptr;
  decltype(&::cudnnBackendDestroyDescriptor) destroy_ = nullptr;
  decltype(&::cudnnBackendSetAttribute) set_          = nullptr;
  decltype(&::cudnnBackendGetAttribute) get_          = nullptr;
  decltype(&::cudnnBackendFinalize) finalize_         = nullptr;
  decltype(&::cudnnBackendExecute) execute_           = nullptr;
  decltype(&::cudnnSetStream) set_stream_             = nullptr;
  decltype(&::cudnnDestroy) destroy_handle_           = nullptr;
  decltype(&::cudnnGetErrorString) words_             = nullptr;
};

}  // namespace fathom::lab
