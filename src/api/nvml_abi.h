/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ABI of NVML, API version 13, as far as the functions of nvml.tbl that we model need it: our own declarations of public names, numbers
 * and layouts. Sizes are asserted below, as they are part of the version words that programs pass in.
 */
#pragma once

/* A version word carries the structure's size, so that an old library refuses a structure that it does not know. */
#define AQ_NVML_VERSION(type, version) ((unsigned)sizeof(type) | ((unsigned)(version) << 24))

typedef struct nvmlDevice_st *nvmlDevice_t;

/* clang-format off */

typedef enum {
	NVML_SUCCESS = 0, NVML_ERROR_UNINITIALIZED = 1, NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3, NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_ALREADY_INITIALIZED = 5, NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7, NVML_ERROR_INSUFFICIENT_POWER = 8,
	NVML_ERROR_DRIVER_NOT_LOADED = 9, NVML_ERROR_TIMEOUT = 10, NVML_ERROR_IRQ_ISSUE = 11,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12, NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_CORRUPTED_INFOROM = 14, NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_RESET_REQUIRED = 16, NVML_ERROR_OPERATING_SYSTEM = 17,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18, NVML_ERROR_IN_USE = 19, NVML_ERROR_MEMORY = 20,
	NVML_ERROR_NO_DATA = 21, NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22,
	NVML_ERROR_INSUFFICIENT_RESOURCES = 23, NVML_ERROR_FREQ_NOT_SUPPORTED = 24,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25, NVML_ERROR_DEPRECATED = 26,
	NVML_ERROR_NOT_READY = 27, NVML_ERROR_GPU_NOT_FOUND = 28, NVML_ERROR_INVALID_STATE = 29,
	NVML_ERROR_RESET_TYPE_NOT_SUPPORTED = 30, NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

enum { NVML_INIT_FLAG_NO_GPUS = 1, NVML_INIT_FLAG_NO_ATTACH = 2, NVML_INIT_FLAG_FORCE_INIT = 4 };

typedef enum { NVML_FEATURE_DISABLED = 0, NVML_FEATURE_ENABLED = 1 } nvmlEnableState_t;

/* Brands of the vendor's products; a software card has none of them. */
typedef enum { NVML_BRAND_UNKNOWN = 0, NVML_BRAND_TESLA = 2, NVML_BRAND_NVIDIA = 14 } nvmlBrandType_t;

typedef enum {
	NVML_COMPUTEMODE_DEFAULT = 0, NVML_COMPUTEMODE_EXCLUSIVE_THREAD = 1,
	NVML_COMPUTEMODE_PROHIBITED = 2, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3,
} nvmlComputeMode_t;

typedef enum {
	NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_CLOCK_VIDEO = 3,
	NVML_CLOCK_COUNT = 4,
} nvmlClockType_t;

typedef enum {
	NVML_CLOCK_ID_CURRENT = 0, NVML_CLOCK_ID_APP_CLOCK_TARGET = 1,
	NVML_CLOCK_ID_APP_CLOCK_DEFAULT = 2, NVML_CLOCK_ID_CUSTOMER_BOOST_MAX = 3,
	NVML_CLOCK_ID_COUNT = 4,
} nvmlClockId_t;

enum { NVML_CLOCKS_EVENT_REASON_NONE = 0, NVML_CLOCKS_EVENT_REASON_GPU_IDLE = 1 };

typedef enum { NVML_PSTATE_0 = 0, NVML_PSTATE_8 = 8, NVML_PSTATE_UNKNOWN = 32 } nvmlPstates_t;

typedef enum { NVML_TEMPERATURE_GPU = 0 } nvmlTemperatureSensors_t;

typedef enum {
	NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1,
	NVML_TEMPERATURE_THRESHOLD_MEM_MAX = 2, NVML_TEMPERATURE_THRESHOLD_GPU_MAX = 3,
	NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MIN = 4, NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR = 5,
	NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MAX = 6, NVML_TEMPERATURE_THRESHOLD_GPS_CURR = 7,
	NVML_TEMPERATURE_THRESHOLD_COUNT = 8,
} nvmlTemperatureThresholds_t;

typedef enum {
	NVML_TOPOLOGY_INTERNAL = 0, NVML_TOPOLOGY_SINGLE = 10, NVML_TOPOLOGY_MULTIPLE = 20,
	NVML_TOPOLOGY_HOSTBRIDGE = 30, NVML_TOPOLOGY_NODE = 40, NVML_TOPOLOGY_SYSTEM = 50,
} nvmlGpuTopologyLevel_t;

typedef enum {
	NVML_P2P_CAPS_INDEX_READ = 0, NVML_P2P_CAPS_INDEX_WRITE = 1,
	NVML_P2P_CAPS_INDEX_NVLINK = 2, NVML_P2P_CAPS_INDEX_ATOMICS = 3,
	NVML_P2P_CAPS_INDEX_PCI = 4, NVML_P2P_CAPS_INDEX_UNKNOWN = 5,
} nvmlGpuP2PCapsIndex_t;

typedef enum { NVML_P2P_STATUS_OK = 0, NVML_P2P_STATUS_NOT_SUPPORTED = 5 } nvmlGpuP2PStatus_t;

typedef enum { NVML_GPU_VIRTUALIZATION_MODE_NONE = 0 } nvmlGpuVirtualizationMode_t;

typedef enum {
	NVML_VALUE_TYPE_DOUBLE = 0, NVML_VALUE_TYPE_UNSIGNED_INT = 1,
	NVML_VALUE_TYPE_UNSIGNED_LONG = 2, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3,
	NVML_VALUE_TYPE_SIGNED_LONG_LONG = 4, NVML_VALUE_TYPE_SIGNED_INT = 5,
	NVML_VALUE_TYPE_UNSIGNED_SHORT = 6,
} nvmlValueType_t;

/* Field ids that we answer. */
enum {
	NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 83, NVML_FI_DEV_POWER_AVERAGE = 185,
	NVML_FI_DEV_POWER_INSTANT = 186, NVML_FI_DEV_POWER_MIN_LIMIT = 187,
	NVML_FI_DEV_POWER_MAX_LIMIT = 188, NVML_FI_DEV_POWER_DEFAULT_LIMIT = 189,
	NVML_FI_DEV_POWER_CURRENT_LIMIT = 190, NVML_FI_DEV_ENERGY = 191,
	NVML_FI_DEV_POWER_REQUESTED_LIMIT = 192,
};

typedef enum { NVML_UUID_TYPE_NONE = 0, NVML_UUID_TYPE_ASCII = 1, NVML_UUID_TYPE_BINARY = 2 } nvmlUUIDType_t;

/* clang-format on */

typedef unsigned nvmlDeviceArchitecture_t;
typedef unsigned nvmlAffinityScope_t;
typedef unsigned nvmlPowerSource_t;

#define NVML_DEVICE_ARCH_KEPLER	   2
#define NVML_DEVICE_ARCH_MAXWELL   3
#define NVML_DEVICE_ARCH_PASCAL	   4
#define NVML_DEVICE_ARCH_VOLTA	   5
#define NVML_DEVICE_ARCH_TURING	   6
#define NVML_DEVICE_ARCH_AMPERE	   7
#define NVML_DEVICE_ARCH_ADA	   8
#define NVML_DEVICE_ARCH_HOPPER	   9
#define NVML_DEVICE_ARCH_BLACKWELL 10
#define NVML_DEVICE_ARCH_UNKNOWN   0xffffffffU

#define NVML_AFFINITY_SCOPE_NODE   0
#define NVML_AFFINITY_SCOPE_SOCKET 1

#define NVML_POWER_SOURCE_AC 0

/* In process entries and affinity: "no such instance". */
#define NVML_NO_INSTANCE 0xffffffffU

/* Lengths that NVIDIA documents as sufficient for the text; programs pass these. */
#define NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE    32
#define NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE 16

/* The first two versions of nvmlDeviceGetPciInfo know only the part before busId. */
typedef struct {
	char busIdLegacy[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE];
	unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
} nvmlPciInfo_t;

typedef struct {
	unsigned version;
	unsigned domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
	char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
} nvmlPciInfoExt_v1_t, nvmlPciInfoExt_t;

typedef struct {
	unsigned version;
	unsigned type; /* nvmlUUIDType_t */
	union {
		char str[41];
		unsigned char bytes[16];
	} value;
} nvmlUUID_v1_t, nvmlUUID_t;

typedef struct {
	unsigned version;
	char branch[80];
} nvmlSystemDriverBranchInfo_v1_t, nvmlSystemDriverBranchInfo_t;

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
	unsigned version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
	unsigned long long bar1Total, bar1Free, bar1Used;
} nvmlBAR1Memory_t;

typedef struct {
	unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct {
	unsigned pid;
	unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

/* _v2 and _v3 of the functions share it. */
typedef struct {
	unsigned pid;
	unsigned long long usedGpuMemory;
	unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v2_t, nvmlProcessInfo_t;

typedef struct {
	unsigned pid;
	unsigned long long usedGpuMemory;
	unsigned gpuInstanceId, computeInstanceId;
	unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

/* mode: 0 compute, 1 graphics, 2 compute through MPS */
typedef struct {
	unsigned version, mode, numProcArrayEntries;
	nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t, nvmlProcessDetailList_t;

typedef struct {
	unsigned pid;
	unsigned long long timeStamp; /* microseconds of wall clock time */
	unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
	unsigned long long timeStamp;
	unsigned pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;

typedef struct {
	unsigned version, processSamplesCount;
	unsigned long long lastSeenTimeStamp;
	nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t, nvmlProcessesUtilizationInfo_t;

/* The first version of nvmlDeviceGetAttributes knows only the first six. */
typedef struct {
	unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount,
		sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
	unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct {
	unsigned version;
	nvmlTemperatureSensors_t sensorType;
	int temperature;
} nvmlTemperature_v1_t, nvmlTemperature_t;

typedef struct {
	unsigned version;
	int marginTemperature;
} nvmlMarginTemperature_v1_t, nvmlMarginTemperature_t;

typedef union {
	double dVal;
	int siVal;
	unsigned uiVal;
	unsigned long ulVal;
	unsigned long long ullVal;
	signed long long sllVal;
	unsigned short usVal;
} nvmlValue_t;

typedef struct {
	unsigned fieldId, scopeId;
	long long timestamp; /* microseconds of wall clock time */
	long long latencyUsec;
	nvmlValueType_t valueType;
	nvmlReturn_t nvmlReturn;
	nvmlValue_t value;
} nvmlFieldValue_t;

_Static_assert(sizeof(nvmlPciInfo_t) == 68, "ABI");
_Static_assert(sizeof(nvmlPciInfoExt_t) == 64, "ABI");
_Static_assert(sizeof(nvmlUUID_t) == 52, "ABI");
_Static_assert(sizeof(nvmlSystemDriverBranchInfo_t) == 84, "ABI");
_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "ABI");
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16, "ABI");
_Static_assert(sizeof(nvmlProcessInfo_v2_t) == 24, "ABI");
_Static_assert(sizeof(nvmlProcessDetail_v1_t) == 32, "ABI");
_Static_assert(sizeof(nvmlProcessDetailList_t) == 24, "ABI");
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "ABI");
_Static_assert(sizeof(nvmlProcessUtilizationInfo_v1_t) == 40, "ABI");
_Static_assert(sizeof(nvmlProcessesUtilizationInfo_t) == 24, "ABI");
_Static_assert(sizeof(nvmlDeviceAttributes_t) == 40, "ABI");
_Static_assert(sizeof(nvmlTemperature_t) == 12, "ABI");
_Static_assert(sizeof(nvmlMarginTemperature_t) == 8, "ABI");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "ABI");
