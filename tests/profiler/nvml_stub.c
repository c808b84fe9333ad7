/* A stand-in for NVIDIA's libnvidia-ml.so.1: what the boards answer is set by the test through stub_*().
 *
 *     gcc -shared -fPIC -O1 -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml_stub.c
 *
 * The environment variable NVML_STUB_BOARDS sets the number of boards that are there from the start.
 */
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };
enum { BOARDS = 4, KINDS = 3, SLICES = 3, PROCESSES = 8 };
enum { POWER_AVERAGE = 185, POWER_INSTANT = 186 };

typedef unsigned int nvml_return;
typedef struct { unsigned int value; nvml_return status; } power_reading;
typedef struct board {
    const char *name, *uuid;
    struct board *slices[SLICES]; /* a place may be empty */
    unsigned int processes[PROCESSES], process_count, temperature_c, clocks_mhz[KINDS];
    unsigned long long throttle;
    nvml_return conditions_status;
    unsigned long long energy_mj;
    nvml_return energy_status;
    unsigned int limit_mw;
    power_reading power[KINDS]; /* usage, average, instant */
} board;
typedef struct {
    unsigned int field, scope;
    long long timestamp, latency;
    unsigned int type;
    nvml_return status;
    unsigned long long value;
} field_value;

typedef struct {
    unsigned int pid;
    unsigned long long memory;
    unsigned int gpu_instance, compute_instance;
} process;

static board boards[BOARDS], slices[BOARDS][SLICES];
static unsigned int count;
static nvml_return init_status;
static int users;

void stub_reset(unsigned int new_count, nvml_return new_init_status) {
    memset(boards, 0, sizeof boards);
    memset(slices, 0, sizeof slices);
    for (int i = 0; i < BOARDS; i++) {
        static const char *const uuids[BOARDS] = {"GPU-aaaa-0", "GPU-bbbb-1", "GPU-cccc-2", "GPU-dddd-3"};
        boards[i].name = "Stub Board";
        boards[i].uuid = uuids[i];
        boards[i].limit_mw = 400000;
        boards[i].energy_mj = 1000000;
        boards[i].temperature_c = 61;
        boards[i].clocks_mhz[1] = 1410;
        boards[i].clocks_mhz[2] = 1593;
        for (int kind = 0; kind < KINDS; kind++) boards[i].power[kind].value = 50000;
    }
    count = new_count;
    init_status = new_init_status;
    users = 0;
}
void stub_name(int i, const char *name) { boards[i].name = name; }
void stub_limit(int i, unsigned int limit_mw) { boards[i].limit_mw = limit_mw; }
void stub_energy(int i, unsigned long long energy_mj, nvml_return status) {
    boards[i].energy_mj = energy_mj;
    boards[i].energy_status = status;
}
void stub_power(int i, int kind, unsigned int power_mw, nvml_return status) {
    boards[i].power[kind] = (power_reading){power_mw, status};
}
void stub_slice(int i, int place, const char *uuid) {
    slices[i][place].uuid = uuid;
    boards[i].slices[place] = &slices[i][place];
}
void stub_process(int i, unsigned int pid) { boards[i].processes[boards[i].process_count++] = pid; }
void stub_throttle(int i, unsigned long long bits) { boards[i].throttle = bits; }
void stub_conditions_status(int i, nvml_return status) { boards[i].conditions_status = status; }
int stub_users(void) { return users; }

__attribute__((constructor)) static void from_environment(void) {
    const char *wanted = getenv("NVML_STUB_BOARDS");
    stub_reset(wanted ? (unsigned int)atoi(wanted) : 0, SUCCESS);
}

const char *nvmlErrorString(nvml_return status) { return status == NOT_SUPPORTED ? "Not Supported" : "Stub Error"; }
nvml_return nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    if (init_status == SUCCESS) users++;
    return init_status;
}
nvml_return nvmlShutdown(void) {
    if (users == 0) return UNINITIALIZED;
    users--;
    return SUCCESS;
}
nvml_return nvmlSystemGetDriverVersion(char *text, unsigned int length) {
    strncpy(text, "575.51", length);
    return SUCCESS;
}
nvml_return nvmlDeviceGetCount_v2(unsigned int *result) {
    if (users == 0) return UNINITIALIZED;
    *result = count;
    return SUCCESS;
}
nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned int index, board **handle) {
    if (users == 0) return UNINITIALIZED;
    if (index >= count) return INVALID_ARGUMENT;
    *handle = &boards[index];
    return SUCCESS;
}
nvml_return nvmlDeviceGetName(board *handle, char *text, unsigned int length) {
    strncpy(text, handle->name, length);
    return SUCCESS;
}
nvml_return nvmlDeviceGetUUID(board *handle, char *text, unsigned int length) {
    strncpy(text, handle->uuid, length);
    return SUCCESS;
}
nvml_return nvmlDeviceGetEnforcedPowerLimit(board *handle, unsigned int *limit_mw) {
    *limit_mw = handle->limit_mw;
    return handle->limit_mw ? SUCCESS : NOT_SUPPORTED;
}
nvml_return nvmlDeviceGetTotalEnergyConsumption(board *handle, unsigned long long *energy_mj) {
    if (users == 0) return UNINITIALIZED;
    *energy_mj = handle->energy_mj;
    return handle->energy_status;
}
nvml_return nvmlDeviceGetPowerUsage(board *handle, unsigned int *power_mw) {
    if (users == 0) return UNINITIALIZED;
    *power_mw = handle->power[0].value;
    return handle->power[0].status;
}
nvml_return nvmlDeviceGetFieldValues(board *handle, int length, field_value *values) {
    if (users == 0) return UNINITIALIZED;
    for (int i = 0; i < length; i++) {
        int kind = values[i].field == POWER_AVERAGE ? 1 : values[i].field == POWER_INSTANT ? 2 : 0;
        values[i].type = 1; /* unsigned int */
        values[i].status = kind ? handle->power[kind].status : NOT_SUPPORTED;
        values[i].value = handle->power[kind].value;
    }
    return SUCCESS;
}
nvml_return nvmlDeviceGetMigMode(board *handle, unsigned int *current, unsigned int *pending) {
    *current = *pending = 0;
    for (int i = 0; i < SLICES; i++) *current |= handle->slices[i] != NULL;
    return SUCCESS;
}
nvml_return nvmlDeviceGetMaxMigDeviceCount(board *handle, unsigned int *result) {
    (void)handle;
    *result = SLICES;
    return SUCCESS;
}
nvml_return nvmlDeviceGetMigDeviceHandleByIndex(board *handle, unsigned int place, board **slice) {
    *slice = handle->slices[place];
    return *slice ? SUCCESS : NOT_FOUND;
}
nvml_return nvmlDeviceGetComputeRunningProcesses_v3(board *handle, unsigned int *length, process *list) {
    unsigned int room = *length;
    *length = handle->process_count;
    if (room < handle->process_count) return TOO_SMALL;
    for (unsigned int i = 0; i < handle->process_count; i++) list[i].pid = handle->processes[i];
    return SUCCESS;
}
nvml_return nvmlDeviceGetTemperature(board *handle, unsigned int sensor, unsigned int *result) {
    *result = handle->temperature_c;
    return sensor ? INVALID_ARGUMENT : handle->conditions_status;
}
nvml_return nvmlDeviceGetClockInfo(board *handle, unsigned int kind, unsigned int *result) {
    *result = handle->clocks_mhz[kind];
    return handle->conditions_status;
}
nvml_return nvmlDeviceGetCurrentClocksEventReasons(board *handle, unsigned long long *result) {
    *result = handle->throttle;
    return handle->conditions_status;
}
