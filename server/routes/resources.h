/* resources.h: what the table of routes in service.c names, one file a resource. */
#ifndef XN_RESOURCES_H
#define XN_RESOURCES_H

#include "context.h"

/* conv.c: POST /conv. */
extern const xn_resource xn_conv_resource;

/* weights.c: /weights. */
extern const xn_resource xn_weights_list_resource;
extern const xn_resource xn_weights_show_resource;
extern const xn_resource xn_weights_put_resource;
extern const xn_resource xn_weights_delete_resource;

/* infer.c: POST /v2/models/{model}/infer. */
extern const xn_resource xn_infer_resource;

/* models.c: what is said of models. */
extern const xn_resource xn_model_resource;
extern const xn_resource xn_model_ready_resource;
extern const xn_resource xn_model_config_resource;
extern const xn_resource xn_model_stats_resource;
extern const xn_resource xn_models_stats_resource;

/* repository.c: /v2/repository. */
extern const xn_resource xn_index_resource;
extern const xn_resource xn_load_resource;
extern const xn_resource xn_unload_resource;

/* shm.c: /v2/systemsharedmemory, /v2/cudasharedmemory, of which there is none. */
extern const xn_resource xn_shm_status_resource;
extern const xn_resource xn_shm_register_resource;
extern const xn_resource xn_shm_unregister_resource;
extern const xn_resource xn_cuda_shm_status_resource;
extern const xn_resource xn_cuda_shm_unregister_resource;

/* meta.c: the small documents. */
extern const xn_resource xn_live_resource;
extern const xn_resource xn_ready_resource;
extern const xn_resource xn_server_resource;
extern const xn_resource xn_metrics_resource;
/* What the protocol has and this server has not: 501. */
extern const xn_resource xn_unsupported_resource;

/* files.c: the files inside the binary: the page, openapi.yaml. */
extern const xn_resource xn_file_resource;

#endif
