/* A stand-in for ROCm's libamd_smi.so: what the boards answer is set by the test through stub_*().
 *
 * The package `amdsmi` wants every symbol of the library when it is imported; the test writes those that are not
 * here into a second file, as functions that are not supported.
 */
#include <stdint.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 2, BOARDS = 4, PROCESSES = 8 };

typedef struct {
    char name[256];
    uint64_t count;
    float resolution_uj;
    int energy_status;
    uint32_t current_w, average_w;
    uint64_t socket_w, cap_uw;
    uint32_t hip_id;
    char hip_uuid[256];
    uint32_t processes[PROCESSES], process_count;
    int64_t hotspot;
    uint32_t clock_mhz;
} board;
typedef struct {
    uint64_t socket_power;
    uint32_t current_socket_power, average_socket_power;
    uint64_t gfx_voltage, soc_voltage, mem_voltage;
    uint32_t power_limit, padding;
    uint64_t reserved[18];
} power_info;
typedef struct { uint64_t power_cap, default_cap, dpm_cap, min_cap, max_cap, reserved[3]; } cap_info;
typedef struct { uint32_t drm_render, drm_card, hsa_id, hip_id; char hip_uuid[256]; } enumeration_info;
typedef struct {
    char name[256];
    uint32_t pid, padding;
    uint64_t mem, usage[16];
    char container[256];
    uint32_t cu_occupancy, reserved[11];
} process_info;

static board boards[BOARDS];
static uint32_t count;
static int init_status;

void stub_reset(uint32_t new_count, int new_init_status) {
    static const char *const uuids[BOARDS] = {"GPU-a0", "GPU-b1", "GPU-c2", "GPU-d3"};
    memset(boards, 0, sizeof boards);
    for (int i = 0; i < BOARDS; i++) {
        strcpy(boards[i].name, "Stub Instinct");
        strcpy(boards[i].hip_uuid, uuids[i]);
        boards[i].count = 1000;
        boards[i].resolution_uj = 15.5f;
        boards[i].current_w = boards[i].socket_w = 50;
        boards[i].average_w = 0xFFFF;
        boards[i].cap_uw = 400000000;
        boards[i].hip_id = i;
        boards[i].hotspot = 61;
        boards[i].clock_mhz = 1700;
    }
    count = new_count;
    init_status = new_init_status;
}
void stub_name(int i, const char *name) { strncpy(boards[i].name, name, sizeof boards[i].name - 1); }
void stub_energy(int i, uint64_t units, float resolution_uj, int status) {
    boards[i].count = units;
    boards[i].resolution_uj = resolution_uj;
    boards[i].energy_status = status;
}
void stub_power(int i, uint32_t current_w, uint32_t average_w, uint64_t socket_w) {
    boards[i].current_w = current_w;
    boards[i].average_w = average_w;
    boards[i].socket_w = socket_w;
}
void stub_cap(int i, uint64_t cap_uw) { boards[i].cap_uw = cap_uw; }
void stub_hip(int i, uint32_t hip_id) { boards[i].hip_id = hip_id; }
void stub_process(int i, uint32_t pid) { boards[i].processes[boards[i].process_count++] = pid; }
void stub_hotspot(int i, int64_t told) { boards[i].hotspot = told; }

int amdsmi_init(uint64_t flags) { (void)flags; return init_status; }
int amdsmi_shut_down(void) { return SUCCESS; }
int amdsmi_get_socket_handles(uint32_t *number, void **handles) {
    if (handles) handles[0] = boards;
    *number = 1;
    return SUCCESS;
}
int amdsmi_get_processor_handles(void *socket, uint32_t *number, void **handles) {
    (void)socket;
    for (uint32_t i = 0; handles && i < count; i++) handles[i] = &boards[i];
    *number = count;
    return SUCCESS;
}
int amdsmi_get_gpu_enumeration_info(board *handle, enumeration_info *info) {
    info->hip_id = handle->hip_id;
    strcpy(info->hip_uuid, handle->hip_uuid);
    return SUCCESS;
}
int amdsmi_get_gpu_asic_info(board *handle, char *info) {
    strcpy(info, handle->name); /* market_name is its first field */
    return SUCCESS;
}
int amdsmi_get_energy_count(board *handle, uint64_t *units, float *resolution_uj, uint64_t *time_ns) {
    *units = handle->count;
    *resolution_uj = handle->resolution_uj;
    *time_ns = 0;
    return handle->energy_status;
}
int amdsmi_get_power_info(board *handle, power_info *info) {
    info->current_socket_power = handle->current_w;
    info->average_socket_power = handle->average_w;
    info->socket_power = handle->socket_w;
    return SUCCESS;
}
int amdsmi_get_power_cap_info(board *handle, uint32_t sensor, cap_info *info) {
    (void)sensor;
    info->power_cap = handle->cap_uw;
    return handle->cap_uw ? SUCCESS : NOT_SUPPORTED;
}
int amdsmi_get_gpu_process_list(board *handle, uint32_t *number, process_info *list) {
    for (uint32_t i = 0; i < handle->process_count; i++) list[i].pid = handle->processes[i];
    *number = handle->process_count;
    return SUCCESS;
}
int amdsmi_get_temp_metric(board *handle, int sensor, int metric, int64_t *told) {
    (void)sensor, (void)metric;
    *told = handle->hotspot;
    return SUCCESS;
}
int amdsmi_get_clock_info(board *handle, int kind, uint32_t *info) {
    (void)kind;
    info[0] = handle->clock_mhz;
    return SUCCESS;
}
