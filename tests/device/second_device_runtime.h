// Runtime of the second device: counters, memory, random numbers, device guard and hooks.

#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::Storage;
using c10::Stream;

const Device DEVICE(DeviceType::PrivateUse1, 0);
const Device HOST(DeviceType::CPU);

// ---------------------------------------------------------------------------------------------
// Counters. Backward passes run on the device thread of autograd, hence the lock.

struct Counters {
  std::mutex lock;
  int64_t launches = 0, uploads = 0, downloads = 0, scalar_reads = 0;
  std::map<std::string, int64_t> operators;  // launches by operator name

  void launch(const std::string& name) {
    std::lock_guard<std::mutex> guard(lock);
    ++launches;
    ++operators[name];
  }
  void add(int64_t Counters::*counter) {
    std::lock_guard<std::mutex> guard(lock);
    ++(this->*counter);
  }
};

Counters& counters() {
  static auto* instance = new Counters;  // outlives threads that still run at exit
  return *instance;
}

// ---------------------------------------------------------------------------------------------
// Memory. Results of CPU kernels are adopted without a copy and counted like allocations.

struct Memory {
  std::mutex lock;
  c10::CachingAllocator::Stat bytes;
  size_t limit = std::numeric_limits<size_t>::max();

  void take(size_t size) {
    std::lock_guard<std::mutex> guard(lock);
    const auto used = static_cast<size_t>(bytes.current);
    TORCH_CHECK_WITH(
        OutOfMemoryError,
        used + size <= limit,
        "fln out of memory. Tried to allocate ", size, " bytes, ", used, " of ", limit, " in use.");
    bytes.increase(size);
  }
  void give_back(size_t size) {
    std::lock_guard<std::mutex> guard(lock);
    bytes.decrease(size);
  }
};

Memory& memory() {
  static auto* instance = new Memory;
  return *instance;
}

// Owner of host memory that a device storage uses.
struct Block {
  c10::DataPtr host;
  Storage adopted;
  size_t size;

  static void release(void* block) {
    memory().give_back(static_cast<Block*>(block)->size);
    delete static_cast<Block*>(block);
  }
};

struct DeviceMemoryAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t size) override {
    memory().take(size);
    auto* block = new Block{c10::GetCPUAllocator()->allocate(size), Storage(), size};
    return {block->host.get(), block, &Block::release, DEVICE};
  }
  void copy_data(void* target, const void* source, size_t size) const override {
    default_copy_data(target, source, size);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& /*pointer*/, Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex /*device*/) override {
    std::lock_guard<std::mutex> guard(memory().lock);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0] = stats.reserved_bytes[0] = memory().bytes;
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex /*device*/) override {}
  void resetPeakStats(DeviceIndex /*device*/) override {
    std::lock_guard<std::mutex> guard(memory().lock);
    memory().bytes.peak = memory().bytes.current;
  }
};

DeviceMemoryAllocator device_allocator;
REGISTER_ALLOCATOR(DeviceType::PrivateUse1, &device_allocator)

// Pinned host memory is ordinary memory whose addresses are remembered.
struct PinnedAllocator final : c10::Allocator {
  static std::map<const char*, size_t>& ranges() {
    static auto* instance = new std::map<const char*, size_t>;
    return *instance;
  }
  static std::mutex& lock() {
    static auto* instance = new std::mutex;
    return *instance;
  }
  static void release(void* address) {
    {
      std::lock_guard<std::mutex> guard(lock());
      ranges().erase(static_cast<const char*>(address));
    }
    c10::GetCPUAllocator()->raw_deallocate(address);
  }
  static bool contains(const void* address) {
    std::lock_guard<std::mutex> guard(lock());
    const auto* byte = static_cast<const char*>(address);
    auto next = ranges().upper_bound(byte);
    if (next == ranges().begin()) return false;
    --next;
    return byte < next->first + std::max<size_t>(next->second, 1);
  }
  c10::DataPtr allocate(size_t size) override {
    void* address = c10::GetCPUAllocator()->raw_allocate(size);
    std::lock_guard<std::mutex> guard(lock());
    ranges()[static_cast<const char*>(address)] = size;
    return {address, address, &release, HOST};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, size_t size) const override {
    default_copy_data(target, source, size);
  }
};

PinnedAllocator pinned_allocator;

// ---------------------------------------------------------------------------------------------
// Random numbers: a stream of the device's own, which torch.default_generator does not seed.

struct DeviceGenerator final : c10::GeneratorImpl {
  at::Generator host;  // draws the numbers

  explicit DeviceGenerator(at::Generator generator)
      : GeneratorImpl(DEVICE, DispatchKeySet(DispatchKey::PrivateUse1)),
        host(std::move(generator)) {}
  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { host.set_offset(offset); }
  uint64_t get_offset() const override { return host.get_offset(); }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.seed(); }
  void set_state(const c10::TensorImpl& state) override {
    host.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return host.unsafeGetGeneratorImpl()->get_state();
  }
  DeviceGenerator* clone_impl() const override { return new DeviceGenerator(host.clone()); }
};

at::Generator new_generator() {
  return at::make_generator<DeviceGenerator>(at::detail::createCPUGenerator());
}

const at::Generator& default_generator() {
  static auto* instance = new at::Generator(new_generator());
  return *instance;
}

at::Generator host_generator(const at::Generator& generator) {
  TORCH_CHECK(
      generator.device() == DEVICE,
      "Expected a '", DEVICE.type(), "' device type for generator but found '",
      generator.device().type(), "'");
  return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->host;
}

// ---------------------------------------------------------------------------------------------
// Device guard and hooks. With one device reported, autograd starts a thread for it.

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DEVICE.type(); }
  Device exchangeDevice(Device device) const override {
    setDevice(device);
    return DEVICE;
  }
  Device getDevice() const override { return DEVICE; }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() <= 0, "fln has one device, got index ", int(device.index()));
  }
  void uncheckedSetDevice(Device /*device*/) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override { return 1; }
  Stream getStream(Device /*device*/) const override { return Stream(Stream::DEFAULT, DEVICE); }
  Stream getDefaultStream(Device device) const override { return getStream(device); }
  Stream getNewStream(Device device, int /*priority*/) const override { return getStream(device); }
  Stream getStreamFromGlobalPool(Device device, bool /*priority*/) const override {
    return getStream(device);
  }
  Stream exchangeStream(Stream stream) const override { return stream; }
  bool queryStream(const Stream& /*stream*/) const override { return true; }
  void synchronizeStream(const Stream& /*stream*/) const override {}
  void synchronizeDevice(const DeviceIndex /*device*/) const override {}
  void record(void** event, const Stream& /*stream*/, const DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {
    static int recorded;
    *event = &recorded;
  }
  void block(void* /*event*/, const Stream& /*stream*/) const override {}
  bool queryEvent(void* /*event*/) const override { return true; }
  void synchronizeEvent(void* /*event*/) const override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex /*device*/) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex device) const override {
    Guard().setDevice(Device(DEVICE.type(), device));
  }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    setCurrentDevice(device);
    return 0;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? 0 : exchangeDevice(device);
  }
  Device getDeviceFromPtr(void* /*data*/) const override { return DEVICE; }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::contains(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  const at::Generator& getDefaultGenerator(DeviceIndex /*device*/) const override {
    return default_generator();
  }
  at::Generator getNewGenerator(DeviceIndex /*device*/) const override { return new_generator(); }
  void resizePrivateUse1Bytes(const Storage& storage, size_t size) const override {
    auto data = device_allocator.allocate(size);
    std::memcpy(data.get(), storage.data(), std::min(size, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(size);
  }
};

const bool hooks_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
