// SPDX-License-Identifier: GPL-2.0
/*
 * DCB configuration state for virtual NICs: lets `dcb dcbx|ets|pfc|app` set and show on the fabric NICs of the
 * virtual cluster, whose drivers have no DCB. It only remembers; nothing is classified and no pause frame is
 * ever sent.
 */
#include <linux/dcbnl.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <net/dcbnl.h>

static char *prefix = "fab";
module_param(prefix, charp, 0444);
MODULE_PARM_DESC(prefix, "Names of the NICs that get DCB state begin with this");

/* One NIC's state. Entries of the APP table are kept by the kernel's own dcbnl code. */
struct port {
	struct list_head list;
	struct net_device *dev;
	struct ieee_ets ets;
	struct ieee_pfc pfc;
	u8 dcbx;
};

static LIST_HEAD(ports); /* under rtnl, as are all dcbnl operations */

static struct port *port_of(struct net_device *dev)
{
	struct port *port;

	list_for_each_entry(port, &ports, list)
		if (port->dev == dev)
			return port;
	return NULL;
}

static int get_ets(struct net_device *dev, struct ieee_ets *ets)
{
	*ets = port_of(dev)->ets;
	return 0;
}

static int set_ets(struct net_device *dev, struct ieee_ets *ets)
{
	struct port *port = port_of(dev);
	int tc, percent = 0, shared = 0;

	for (tc = 0; tc < IEEE_8021QAZ_MAX_TCS; tc++) {
		if (ets->prio_tc[tc] >= IEEE_8021QAZ_MAX_TCS)
			return -EINVAL;
		if (ets->tc_tsa[tc] == IEEE_8021QAZ_TSA_ETS) {
			shared++;
			percent += ets->tc_tx_bw[tc];
		}
	}
	if (shared && percent != 100)
		return -EINVAL;
	port->ets = *ets;
	port->ets.ets_cap = IEEE_8021QAZ_MAX_TCS;
	return 0;
}

static int get_pfc(struct net_device *dev, struct ieee_pfc *pfc)
{
	*pfc = port_of(dev)->pfc;
	return 0;
}

static int set_pfc(struct net_device *dev, struct ieee_pfc *pfc)
{
	struct port *port = port_of(dev);

	port->pfc.pfc_en = pfc->pfc_en;
	port->pfc.mbc = pfc->mbc;
	port->pfc.delay = pfc->delay;
	return 0;
}

static u8 get_dcbx(struct net_device *dev)
{
	return port_of(dev)->dcbx;
}

static u8 set_dcbx(struct net_device *dev, u8 mode)
{
	if (!(mode & DCB_CAP_DCBX_HOST) || !(mode & DCB_CAP_DCBX_VER_IEEE) ||
	    (mode & DCB_CAP_DCBX_LLD_MANAGED))
		return 1;
	port_of(dev)->dcbx = mode;
	return 0;
}

static const struct dcbnl_rtnl_ops ops = {
	.ieee_getets = get_ets,
	.ieee_setets = set_ets,
	.ieee_getpfc = get_pfc,
	.ieee_setpfc = set_pfc,
	.getdcbx = get_dcbx,
	.setdcbx = set_dcbx,
};

static void attach(struct net_device *dev)
{
	struct port *port;

	if (strncmp(dev->name, prefix, strlen(prefix)) || dev->dcbnl_ops || port_of(dev))
		return;
	port = kzalloc(sizeof(*port), GFP_KERNEL);
	if (!port)
		return;
	port->dev = dev;
	port->ets.ets_cap = IEEE_8021QAZ_MAX_TCS;
	port->pfc.pfc_cap = IEEE_8021QAZ_MAX_TCS;
	port->dcbx = DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_CEE | DCB_CAP_DCBX_VER_IEEE;
	list_add(&port->list, &ports);
	dev->dcbnl_ops = &ops;
}

static void detach(struct port *port)
{
	port->dev->dcbnl_ops = NULL;
	list_del(&port->list);
	kfree(port);
}

/* NICs get their names after they appear. */
static int on_netdev(struct notifier_block *nb, unsigned long event, void *data)
{
	struct net_device *dev = netdev_notifier_info_to_dev(data);
	struct port *port;

	switch (event) {
	case NETDEV_REGISTER:
	case NETDEV_CHANGENAME:
		attach(dev);
		break;
	case NETDEV_UNREGISTER:
		port = port_of(dev);
		if (port)
			detach(port);
		break;
	}
	return NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = on_netdev };

static int __init start(void)
{
	/* Replays NETDEV_REGISTER for the NICs that are there already. */
	return register_netdevice_notifier(&notifier);
}

static void __exit stop(void)
{
	struct port *port, *next;

	unregister_netdevice_notifier(&notifier);
	rtnl_lock();
	list_for_each_entry_safe(port, next, &ports, list)
		detach(port);
	rtnl_unlock();
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("DCB configuration state for virtual NICs");
