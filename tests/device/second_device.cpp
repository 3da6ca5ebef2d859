// A torch device made of host memory, for tests of device code on machines without an accelerator.
//
// Every operator runs the CPU kernel on CPU tensors that alias the memory of the device tensors.
// Views therefore share memory, and an operator that writes an argument writes the device tensor,
// also where its schema does not say so (running statistics of batch normalization).
// The device counts what a real accelerator pays for: kernel launches, transfers, scalar reads.
// It refuses operators whose tensors lie on two devices.

#include "second_device_runtime.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <unordered_set>
#include <vector>

namespace {

using at::Tensor;
using c10::IValue;
using c10::OperatorHandle;
using c10::StorageImpl;
using torch::jit::Stack;
using Names = std::unordered_set<std::string>;

// Elementwise operators that accept a CPU tensor with zero dimensions, as on CUDA.
const Names ACCEPT_CPU_SCALARS = {
    "add", "sub", "mul", "div", "pow", "fmod", "remainder", "floor_divide", "maximum", "minimum",
    "fmax", "fmin", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
    "bitwise_and", "bitwise_or", "bitwise_xor", "atan2", "hypot", "xlogy", "copysign", "where",
    "masked_fill", "fill", "_foreach_add", "_foreach_mul", "_foreach_div"};

// Operators without a kernel launch, besides views and allocations.
const Names WITHOUT_LAUNCH = {
    "_local_scalar_dense", "resize", "resize_as", "_resize_output", "set", "is_set_to"};

const Names INDEXING = {"index", "_index_put_impl", "index_put"};

// Operators that CUDA runs as a whole although torch can compose them of others.
bool is_kept_whole(const std::string& name) {
  static const Names whole = {"aten::convolution", "aten::convolution_backward"};
  return whole.count(name) || name.rfind("aten::_foreach_", 0) == 0;
}

// Name without namespace and without the underscore of the in-place form.
std::string base_name(const std::string& name) {
  auto base = name.substr(name.rfind(':') + 1);
  if (base.size() > 1 && base.back() == '_') base.pop_back();
  return base;
}

Tensor dense(Storage storage, DispatchKey key, const Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), DispatchKeySet(key), like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return tensor;
}

Storage make_storage(size_t size, c10::DataPtr data, c10::Allocator* allocator) {
  return Storage(c10::make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(), size, std::move(data), allocator, /*resizable=*/true));
}

// Device memory that takes over a host storage.
c10::DataPtr adopt(const Storage& host) {
  memory().take(host.nbytes());
  auto* block = new Block{c10::DataPtr(), host, host.nbytes()};
  return {host.mutable_data(), block, &Block::release, DEVICE};
}

// CPU aliases of the device tensors of one call.
class Aliases {
 public:
  Tensor host(const Tensor& tensor) {
    TORCH_CHECK(tensor.layout() == at::kStrided, "fln has strided tensors only");
    tensors_.emplace_back(tensor, dense(host(tensor.storage()), DispatchKey::CPU, tensor));
    return tensors_.back().second;
  }

  // Gives device tensors the new shape and memory of aliases that the operator has resized.
  void write_back() const {
    for (const auto& [storage, alias] : storages_) {
      if (alias.data() == storage.data() && alias.nbytes() == storage.nbytes()) continue;
      storage.set_data_ptr_noswap(adopt(alias));
      storage.set_nbytes(alias.nbytes());
    }
    for (const auto& [tensor, alias] : tensors_) {
      if (alias.sizes() == tensor.sizes() && alias.strides() == tensor.strides()) continue;
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
          alias.sizes(), alias.strides(), alias.storage_offset());
    }
  }

  // The device tensor for a result: an argument, a view of one, or a new tensor.
  Tensor device(const Tensor& result) {
    if (!result.defined()) return result;
    for (const auto& [tensor, alias] : tensors_)
      if (alias.is_same(result)) return tensor;
    for (const auto& [storage, alias] : storages_)
      if (alias.unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl())
        return dense(storage, DispatchKey::PrivateUse1, result);
    all_shared_ = false;
    const auto& host = result.storage();
    auto storage = make_storage(host.nbytes(), adopt(host), &device_allocator);
    return dense(std::move(storage), DispatchKey::PrivateUse1, result);
  }

  bool empty() const { return tensors_.empty(); }
  bool all_shared() const { return all_shared_; }

 private:
  Storage host(const Storage& storage) {
    for (const auto& [known, alias] : storages_)
      if (known.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) return alias;
    c10::DataPtr data(
        storage.mutable_data(),
        new Storage(storage),
        [](void* owner) { delete static_cast<Storage*>(owner); },
        HOST);
    storages_.emplace_back(
        storage, make_storage(storage.nbytes(), std::move(data), c10::GetCPUAllocator()));
    return storages_.back().second;
  }

  std::vector<std::pair<Tensor, Tensor>> tensors_;
  std::vector<std::pair<Storage, Storage>> storages_;
  bool all_shared_ = true;
};

// One call of an operator: arguments to the host, the CPU kernel, results to the device.
class Call {
 public:
  Call(const OperatorHandle& op, Stack* stack)
      : op_(op), stack_(stack), schema_(op.schema()), name_(base_name(schema_.name())) {}

  void run() {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto num_arguments = schema_.arguments().size();
    const auto first = stack_->size() - num_arguments;
    for (size_t i = 0; i < num_arguments; ++i) {
      const auto& argument = schema_.arguments()[i];
      writes_ = argument.alias_info() && argument.alias_info()->isWrite();
      to_host((*stack_)[first + i], argument.type());
    }
    check_devices();
    count_scalar_reads();
    op_.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack_);
    aliases_.write_back();
    const auto num_results = schema_.returns().size();
    for (size_t i = stack_->size() - num_results; i < stack_->size(); ++i) to_device((*stack_)[i]);
    const bool view = has_tensors_ && aliases_.all_shared() && !schema_.is_mutable();
    if (!view && !WITHOUT_LAUNCH.count(name_)) counters().launch(schema_.name());
  }

 private:
  void to_host(IValue& value, const c10::TypePtr& type) {
    if (value.isTensor()) {
      value = to_host(value.toTensor());
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      for (auto& tensor : list) tensor = to_host(tensor);
      value = c10::List<Tensor>(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      indices_ = true;
      for (const auto& entry : value.toOptionalTensorVector())
        list.push_back(entry ? std::optional<Tensor>(to_host(*entry)) : std::nullopt);
      indices_ = false;
      value = std::move(list);
    } else if (value.isDevice()) {
      value = HOST;
    } else if (value.isGenerator()) {
      value = host_generator(value.toGenerator());
    } else if (value.isNone() && type->str() == "Generator?") {
      value = host_generator(default_generator());
    }
  }

  Tensor to_host(const Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    const bool index = indices_ && INDEXING.count(name_);
    if (index) mask_ |= tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
    num_values_ = tensor.numel();
    if (tensor.device().type() == DEVICE.type()) return aliases_.host(tensor);
    const bool scalar = tensor.dim() == 0 && !writes_;
    if (index || (scalar && INDEXING.count(name_))) {
      ++copied_;  // torch copies a CPU index to the device
    } else if (!tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
               !(scalar && ACCEPT_CPU_SCALARS.count(name_))) {
      refused_ = tensor.device();
    }
    return tensor;
  }

  void to_device(IValue& value) {
    if (value.isTensor()) {
      has_tensors_ = true;
      value = aliases_.device(value.toTensor());
    } else if (value.isTensorList()) {
      has_tensors_ = true;
      auto list = value.toTensorVector();
      for (auto& tensor : list) tensor = aliases_.device(tensor);
      value = c10::List<Tensor>(list);
    }
  }

  void check_devices() const {
    if (aliases_.empty()) return;
    TORCH_CHECK(
        !refused_,
        "Expected all tensors to be on the same device, but found at least two devices, ",
        DEVICE, " and ", *refused_, "! (operator ", schema_.name(), ")");
    for (int i = 0; i < copied_; ++i) counters().add(&Counters::uploads);
  }

  // Operators whose result the host must read before it can go on.
  void count_scalar_reads() const {
    bool reads = op_.hasTag(at::Tag::data_dependent_output);
    if (name_ == "index") {
      reads |= mask_;
    } else if (name_ == "_index_put_impl") {
      reads |= mask_ && num_values_ != 1;  // one value: torch uses masked_fill
    } else {
      reads |= op_.hasTag(at::Tag::dynamic_output_shape);
    }
    if (reads) counters().add(&Counters::scalar_reads);
  }

  const OperatorHandle& op_;
  Stack* stack_;
  const c10::FunctionSchema& schema_;
  std::string name_;
  Aliases aliases_;
  std::optional<Device> refused_;
  bool writes_ = false, indices_ = false, mask_ = false, has_tensors_ = false;
  int copied_ = 0;
  int64_t num_values_ = 0;  // elements of the last tensor argument
};

void run_on_host(const OperatorHandle& op, Stack* stack) { Call(op, stack).run(); }

// ---------------------------------------------------------------------------------------------
// Operators with kernels of their own.

Tensor empty(
    at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
    std::optional<Device> /*device*/, std::optional<bool> /*pin_memory*/,
    std::optional<at::MemoryFormat> format) {
  return Tensor(at::detail::empty_generic(
      size, &device_allocator, DispatchKeySet(DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype), format));
}

Tensor empty_strided(
    at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> /*layout*/, std::optional<Device> /*device*/,
    std::optional<bool> /*pin_memory*/) {
  return Tensor(at::detail::empty_strided_generic(
      size, stride, &device_allocator, DispatchKeySet(DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype)));
}

Tensor copy_from(const Tensor& source, const Tensor& target, bool non_blocking) {
  at::AutoDispatchBelowADInplaceOrView guard;
  Aliases aliases;
  const bool from_host = source.is_cpu(), to_host = target.is_cpu();
  if (from_host) {
    counters().add(&Counters::uploads);
  } else if (to_host) {
    counters().add(&Counters::downloads);
  } else {
    counters().launch("aten::copy_");
  }
  (to_host ? target : aliases.host(target))
      .copy_(from_host ? source : aliases.host(source), non_blocking);
  return target;
}

Tensor copy_from_and_resize(const Tensor& source, const Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, /*non_blocking=*/false);
}

// Same numbers as dropout on the CPU, which composes it of other operators.
std::tuple<Tensor, Tensor> native_dropout(
    const Tensor& input, double p, std::optional<bool> /*train*/) {
  at::AutoDispatchBelowADInplaceOrView guard;
  Aliases aliases;
  counters().launch("aten::native_dropout");
  const auto host = aliases.host(input);
  const auto kept = at::empty_like(host).bernoulli_(1 - p, host_generator(default_generator()));
  return {aliases.device(host.mul(kept.div(1 - p))), aliases.device(kept.to(at::kBool))};
}

const Tensor& set_storage(
    const Tensor& tensor, Storage storage, int64_t offset, at::IntArrayRef size,
    at::IntArrayRef stride) {
  TORCH_CHECK(storage.device() == DEVICE, "Expected a storage on ", DEVICE);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  if (stride.empty() && !size.empty()) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  return tensor;
}

Tensor& set_view(
    Tensor& tensor, Storage storage, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  set_storage(tensor, std::move(storage), offset, size, stride);
  return tensor;
}

Tensor& set_whole(Tensor& tensor, Storage storage) {
  const auto size = static_cast<int64_t>(storage.nbytes() / tensor.dtype().itemsize());
  return set_view(tensor, std::move(storage), 0, {size}, {1});
}

Tensor& set_tensor(Tensor& tensor, const Tensor& source) {
  return set_view(
      tensor, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("native_dropout", &native_dropout);
  library.impl("set_.source_Storage", &set_whole);
  library.impl("set_.source_Storage_storage_offset", &set_view);
  library.impl("set_.source_Tensor", &set_tensor);
  // Registered one by one: the fallback would come after the compositions that torch has of them.
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(DispatchKey::PrivateUse1)) continue;
    if (!op->hasKernelForDispatchKey(DispatchKey::CPU) && !is_kept_whole(name.name)) continue;
    const auto full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  }
}

TORCH_LIBRARY(second_device, library) {
  library.def("counters() -> int[]", [] {
    std::lock_guard<std::mutex> guard(counters().lock);
    return std::vector<int64_t>{
        counters().launches, counters().uploads, counters().downloads, counters().scalar_reads};
  });
  library.def("operators() -> Dict(str, int)", [] {
    std::lock_guard<std::mutex> guard(counters().lock);
    c10::Dict<std::string, int64_t> copy;
    for (const auto& [name, count] : counters().operators) copy.insert(name, count);
    return copy;
  });
  library.def("default_generator() -> Generator?", [] { return default_generator(); });
  library.def("limit_memory(int limit) -> ()", [](int64_t limit) {
    std::lock_guard<std::mutex> guard(memory().lock);
    memory().limit = limit < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(limit);
  });
}
